"""The networks whose gradients are exchanged and whose steps are timed: those of gyre.models, which the ranks in C++
train as well. Tensor lists are made without memory, on torch's meta device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from gyre.models import Cifar10Cnn, CosmoFlow, ResNet, Vgg16

IMAGENET_SIZE = 224


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
    "resnet50": Model(lambda _, classes: ResNet(50, classes=classes), IMAGENET_SIZE, 32, 1000, batch_size=4),
    "resnet101": Model(lambda _, classes: ResNet(101, classes=classes), IMAGENET_SIZE, 32, 1000, batch_size=4),
    "vgg16": Model(Vgg16, IMAGENET_SIZE, 32, 1000, step_image_size=32, step_outputs=10),
    "cifar10": Model(Cifar10Cnn, 32, 10, 10, batch_size=64),
    "cosmoflow": Model(
        lambda size, targets: CosmoFlow(size, targets=targets),
        128,
        32,
        4,
        channels=4,
        dimensions=3,
        batch_size=1,
        step_image_size=32,
    ),
}


def tensor_list(name: str, image_size: int | None = None) -> list[tuple[str, list[int]]]:
    """(name, shape) of the model's parameters, in the order in which backward produces their gradients."""
    model = MODELS[name]
    with torch.device("meta"):
        network = model.make(image_size or model.image_size, model.outputs)
    return [(parameter, list(values.shape)) for parameter, values in network.named_parameters()][::-1]
