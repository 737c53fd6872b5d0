"""The networks of the training programs, made of torch.nn's modules.

What they consist of, and their first values, come from their one definition in C++ (gyre/models): a seed gives the same
weights as the programs' `--seed`, bit for bit. Otherwise they are modules as all others: states can be saved and
loaded, parameters moved and replaced, networks copied, pickled, compiled and exported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gyre.core import _core
from gyre.models.layers import OWN

Layer = tuple[str, str, dict[str, Any], list[Any]]


class Network(nn.Sequential):
    """A network by its definition in C++. Its layers have the names that they have in the programs' checkpoints.

    definition: of each layer its name, its class, the arguments, and the layers in it.
    seed: of the first values. None leaves all parameters zero, for a state that is loaded. torch's own generator is
        not used. On torch's meta device there are no values.
    """

    def __init__(self, definition: _core.NetworkDefinition, seed: int | None) -> None:
        device = torch.get_default_device()
        with torch.device("meta"):  # torch's first values would only cost time.
            super().__init__(_modules_of(definition.layers))
        self.definition = definition.layers
        if device.type == "meta":
            return
        self.to_empty(device=device)
        state = self.state_dict()
        for tensor in state.values():  # Among them the batches that batch normalisation counts.
            tensor.zero_()
        if seed is not None:
            for name in definition.tensors:
                _fill(definition, name, seed, state[name])

    def __getitem__(self, index: Any) -> Any:
        """A slice is a network of another kind."""
        if isinstance(index, slice):
            return nn.Sequential(OrderedDict(list(self.named_children())[index]))
        return super().__getitem__(index)


def _modules_of(definition: Sequence[Layer]) -> OrderedDict[str, nn.Module]:
    return OrderedDict((name, _module_of(kind, arguments, inner)) for name, kind, arguments, inner in definition)


def _module_of(kind: str, arguments: dict[str, Any], inner: Sequence[Layer]) -> nn.Module:
    maker = OWN.get(kind) or getattr(nn, kind)
    made: nn.Module = maker(_modules_of(inner)) if inner else maker(**arguments)
    return made


def _fill(definition: _core.NetworkDefinition, name: str, seed: int, tensor: Tensor) -> None:
    if tensor.device.type == "cpu" and tensor.dtype == torch.float32:
        definition.fill(name, seed, tensor)
        return
    values = torch.empty(tensor.shape, dtype=torch.float32, device="cpu")
    definition.fill(name, seed, values)
    tensor.copy_(values)


class Cifar10Cnn(Network):
    """The CIFAR-10 network of Keras' examples/cifar10_cnn.py: images [n, 3, size, size], values 0 to 1 -> logits [n,
    classes]. 1,250,858 parameters for 10 classes of 32x32 images."""

    def __init__(self, image_size: int = 32, classes: int = 10, *, seed: int | None = 1) -> None:
        super().__init__(_core.cifar10_cnn(image_size, classes), seed)


class CosmoFlow(Network):
    """The network of MLPerf HPC's CosmoFlow benchmark: volumes [n, channels, size, size, size] -> the cosmological
    parameters [n, targets], scaled to -1 to 1.

    The defaults are those of version 1.0 (mlcommons/hpc, cosmoflow/configs/cosmo.yaml): 8,907,556 parameters. Version
    0.7 has kernel_size 2, and 5,597,604.
    """

    def __init__(
        self,
        size: int = 128,
        channels: int = 4,
        convolutions: int = 5,
        conv_size: int = 32,
        kernel_size: int = 3,
        fc1_size: int = 128,
        fc2_size: int = 64,
        targets: int = 4,
        dropout: float = 0.5,
        *,
        seed: int | None = 1,
    ) -> None:
        definition = _core.cosmoflow(
            size, channels, convolutions, conv_size, kernel_size, fc1_size, fc2_size, targets, dropout
        )
        super().__init__(definition, seed)


class ResNet(Network):
    """ResNet with bottleneck blocks (He et al., arXiv 1512.03385) and torchvision's names: images [n, 3, height,
    width], normalised -> logits [n, classes].

    depth: 50, 101 or 152; 14 and 26 for tests.
    version: "v1" halves the image in a stage's first 1x1 convolution, "v1.5" in its 3x3 convolution.
    """

    def __init__(self, depth: int = 50, version: str = "v1.5", classes: int = 1000, *, seed: int | None = 1) -> None:
        super().__init__(_core.resnet(depth, version, classes), seed)


class Vgg16(Network):
    """VGG's configuration D (Simonyan and Zisserman, arXiv 1409.1556): images [n, 3, size, size] -> logits [n,
    classes]."""

    def __init__(self, image_size: int = 224, classes: int = 1000, *, seed: int | None = 1) -> None:
        super().__init__(_core.vgg16(image_size, classes), seed)
