"""What torch.nn lacks for the networks of Gyre. `gyre export` copies these classes: they need only PyTorch."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Sequential):
    """relu(layers(input) + shortcut(input)). The shortcut is the last child if that is called "downsample", else the
    input itself."""

    def __init__(self, layers: OrderedDict[str, nn.Module]) -> None:
        super().__init__(layers)
        self.depth = len(layers) - ("downsample" in layers)

    def forward(self, input: Tensor) -> Tensor:
        x = input
        shortcut = input
        for index, layer in enumerate(self):
            if index < self.depth:
                x = layer(x)
            else:
                shortcut = layer(input)
        return functional.relu(x + shortcut)


class ScaledTanh(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, input: Tensor) -> Tensor:
        return torch.tanh(input) * self.factor

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


OWN: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in (Residual, ScaledTanh)}
