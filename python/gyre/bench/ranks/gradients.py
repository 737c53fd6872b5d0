"""Gradients that are there already: a module whose backward costs next to nothing, so that what is timed is the
exchange.

Its parameters have the shapes of a model's. forward() joins them into one long vector; backward from there hands each
parameter a view of the one gradient given, from the last parameter to the first, as a real backward would.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn


def read_tensor_list(path: Path) -> list[tuple[str, list[int]]]:
    """As models.tensor_list() made it: in the order of backward."""
    return [(entry["name"], entry["shape"]) for entry in json.loads(path.read_text())]


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
        return torch.cat([parameter.view(-1) for parameter in self.list])

    def hand_out(self, output: torch.Tensor) -> None:
        """The backward pass from what forward() returned."""
        output.backward(self.flat)  # type: ignore[no-untyped-call]

    def forget_gradients(self) -> None:
        for parameter in self.list:
            parameter.grad = None

    def empty_cache(self) -> None:
        """So that the gradients are found in memory, where a model's are."""
        self._flush += 1

    def require(self, expected: float) -> None:
        """Every element of every gradient. SystemExit otherwise."""
        for index, parameter in enumerate(self.list):
            if parameter.grad is None or not bool((parameter.grad == expected).all()):
                raise SystemExit(f"wrong answer: the gradient of parameter {index} is not {expected} everywhere")
