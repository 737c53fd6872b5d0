"""The networks whose gradients are exchanged and whose steps are timed, in plain torch.nn.

Their parameters have the shapes of the published networks (torchvision's order for ResNet and VGG); the weights are
random. Tensor lists are made without memory, on torch's meta device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

IMAGENET_SIZE = 224
# VGG's classifier sees 7 x 7 places of ImageNet's images; of smaller images it sees fewer.
_VGG_SHRINKS_BY = 32


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions, the stride on the 3x3 one (v1.5)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        shortcut = x if self.downsample is None else self.downsample(x)
        return torch.relu(y + shortcut)


def resnet(blocks_per_stage: tuple[int, ...], classes: int) -> nn.Module:
    """He et al., 2016, with bottleneck blocks, in the form called v1.5."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    inputs = 64
    for stage, blocks in enumerate(blocks_per_stage):
        width = 64 << stage
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def vgg16(image_size: int, classes: int) -> nn.Module:
    """Simonyan & Zisserman, 2015, configuration D."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    features = inputs * (image_size // _VGG_SHRINKS_BY) ** 2
    return nn.Sequential(
        *layers, nn.Flatten(),
        nn.Linear(features, 4096), nn.ReLU(), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(),
        nn.Linear(4096, classes),
    )  # fmt: skip


def cifar10(image_size: int, classes: int) -> nn.Module:
    """Keras' example network for CIFAR-10: workloads/cifar10."""
    side = ((image_size - 2) // 2 - 2) // 2
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(64 * side * side, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, classes),
    )  # fmt: skip


class _ScaledTanh(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.2 * torch.tanh(x)


def cosmoflow(image_size: int, outputs: int) -> nn.Module:
    """MLPerf HPC v1.0's network: five 3D convolutions on `image_size`^3 voxels of four channels."""
    layers: list[nn.Module] = []
    inputs = 4
    for width in (32, 64, 128, 256, 512):
        layers += [nn.Conv3d(inputs, width, 3, padding=1), nn.LeakyReLU(0.3), nn.MaxPool3d(2)]
        inputs = width
    features = inputs * (image_size // 32) ** 3
    return nn.Sequential(
        *layers, nn.Flatten(),
        nn.Linear(features, 128), nn.LeakyReLU(0.3), nn.Dropout(),
        nn.Linear(128, 64), nn.LeakyReLU(0.3), nn.Dropout(),
        nn.Linear(64, outputs), _ScaledTanh(),
    )  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A network by name. `make(image_size, outputs)` builds it."""

    make: Callable[[int, int], nn.Module]
    image_size: int
    smallest_image_size: int
    outputs: int
    channels: int = 3
    dimensions: int = 2
    # Default for a step: what a CPU can compute in seconds.
    batch_size: int = 32
    step_image_size: int | None = None
    step_outputs: int | None = None

    def sample_shape(self, image_size: int) -> tuple[int, ...]:
        """Of one input."""
        return (self.channels, *([image_size] * self.dimensions))


MODELS = {
    "resnet50": Model(lambda _, classes: resnet((3, 4, 6, 3), classes), IMAGENET_SIZE, 32, 1000, batch_size=4),
    "resnet101": Model(lambda _, classes: resnet((3, 4, 23, 3), classes), IMAGENET_SIZE, 32, 1000, batch_size=4),
    "vgg16": Model(vgg16, IMAGENET_SIZE, 32, 1000, step_image_size=32, step_outputs=10),
    "cifar10": Model(cifar10, 32, 10, 10, batch_size=64),
    "cosmoflow": Model(cosmoflow, 128, 32, 4, channels=4, dimensions=3, batch_size=1, step_image_size=32),
}


def tensor_list(name: str, image_size: int | None = None) -> list[tuple[str, list[int]]]:
    """(name, shape) of the model's parameters, in the order in which backward produces their gradients."""
    model = MODELS[name]
    with torch.device("meta"):
        network = model.make(image_size or model.image_size, model.outputs)
    return [(parameter, list(values.shape)) for parameter, values in network.named_parameters()][::-1]
