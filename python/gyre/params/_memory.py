"""Tensors for the module in C++, which checks their types and sizes and works on their memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.utils.dlpack


def shared(tensor: torch.Tensor) -> Any:
    """Keeps the memory for as long as the module uses it."""
    return torch.utils.dlpack.to_dlpack(tensor.detach())  # type: ignore[attr-defined]


def all_shared(tensors: Iterable[torch.Tensor]) -> list[Any]:
    return [shared(tensor) for tensor in tensors]
