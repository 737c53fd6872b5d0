"""Precomputed gradients: a module whose backward costs next to nothing, so that only the exchange is timed.

Its parameters have the shapes of a model's. forward() computes nothing; backward from what it returns hands each
parameter a view of the one gradient given, from the last parameter to the first, as a real backward would.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn


def read_tensor_list(path: Path) -> list[tuple[str, list[int]]]:
    """As models.tensor_list() made it: in the order of backward."""
    return [(entry["name"], entry["shape"]) for entry in json.loads(path.read_text())]


class _HandOut(torch.autograd.Function):
    """A node of the graph whose backward gives each parameter its part of `flat`."""

    @staticmethod
    def forward(context: Any, flat: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        context.flat = flat
        context.shapes = [parameter.shape for parameter in parameters]
        return flat.new_zeros(())

    @staticmethod
    def backward(context: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        parts = context.flat.split([shape.numel() for shape in context.shapes])
        return None, *(part.view(shape) for part, shape in zip(parts, context.shapes, strict=True))


class GivenGradients(nn.Module):
    """A module with parameters of these shapes; the list is in the order in which their gradients are to come.
    `flush_bytes`: as much as the caches hold."""

    def __init__(self, tensors: list[tuple[str, list[int]]], flush_bytes: int) -> None:
        super().__init__()
        self.list = nn.ParameterList([torch.zeros(shape) for _, shape in reversed(tensors)])
        self.flat = torch.zeros(sum(parameter.numel() for parameter in self.list))
        self._flush = torch.zeros(flush_bytes, dtype=torch.uint8)

    @property
    def size_bytes(self) -> int:
        return self.flat.numel() * self.flat.element_size()

    def forward(self) -> torch.Tensor:
        output: torch.Tensor = _HandOut.apply(self.flat, *self.list)  # type: ignore[no-untyped-call]
        return output

    def hand_out(self, output: torch.Tensor) -> None:
        """The backward pass from what forward() returned."""
        output.backward()  # type: ignore[no-untyped-call]

    def forget_gradients(self) -> None:
        for parameter in self.list:
            parameter.grad = None

    def own_gradients(self) -> None:
        """Zeros in each parameter's own memory: gradients that backward left may be views of what it handed out."""
        for parameter in self.list:
            parameter.grad = torch.zeros_like(parameter)

    def zero_gradients(self) -> None:
        """As zero_grad(set_to_none=False) leaves them."""
        for parameter in self.list:
            if parameter.grad is not None:
                parameter.grad.zero_()

    def empty_cache(self) -> None:
        """Evicts the gradients from the cache, as in a real model."""
        self._flush += 1

    def require(self, expected: float) -> None:
        """Checks every element of every gradient. SystemExit if one is wrong."""
        for index, parameter in enumerate(self.list):
            if parameter.grad is None or not bool((parameter.grad == expected).all()):
                raise SystemExit(f"wrong answer: the gradient of parameter {index} is not {expected} everywhere")
