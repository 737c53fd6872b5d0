"""What the engine must know about a torch tensor, and which tensors it cannot accept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

import torch

from gyre.core import _core
from gyre.errors import InvalidArgumentError, UnsupportedError

# The numbers of gyre/collectives/data_type.h.
DATA_TYPE_NUMBERS: dict[torch.dtype, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.bfloat16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.bool: 9,
}


def exchangeable(tensor: object) -> TypeGuard[torch.Tensor]:
    """Whether check_tensor() accepts it."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.layout == torch.strided
        and tensor.is_cpu
        and tensor.dtype in DATA_TYPE_NUMBERS
    )


def check_tensor(tensor: object, action: str) -> torch.Tensor:
    """`tensor`, if the engine can accept it. `action` ("allreduce of 'x'") starts the message.

    TypeError for anything that is not a tensor; UnsupportedError for another device or layout; InvalidArgumentError (a
    ValueError) for an unsupported data type.
    """
    if exchangeable(tensor):
        return tensor
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{action}: expected a torch.Tensor, got {type(tensor).__name__}; pass torch.as_tensor(value)")
    if tensor.layout != torch.strided:
        kind = str(tensor.layout).removeprefix("torch.")
        raise UnsupportedError(f"{action}: a {kind} tensor cannot be exchanged; pass tensor.to_dense()")
    if tensor.is_meta:
        raise UnsupportedError(f"{action}: the tensor is on device 'meta', and so has no values to exchange")
    if tensor.device.type != "cpu":
        raise UnsupportedError(
            f"{action}: the tensor is on device '{tensor.device}', but Gyre exchanges tensors in host memory; "
            "pass tensor.cpu()"
        )
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DATA_TYPE_NUMBERS)
    hint = "; pass torch.view_as_real(tensor)" if tensor.dtype.is_complex else ""
    raise InvalidArgumentError(
        f"{action}: tensors of type {str(tensor.dtype).removeprefix('torch.')} cannot be exchanged{hint} "
        f"(possible: {names})"
    )


def check_in_place(tensor: object, action: str) -> torch.Tensor:
    """As check_tensor(), for an operation that overwrites the tensor. Parameters can be overwritten;
    InvalidArgumentError for tensors computed from them, whose gradient would be lost."""
    return check_overwritable(check_tensor(tensor, action), action)


def check_overwritable(checked: torch.Tensor, action: str) -> torch.Tensor:
    """The second half of check_in_place()."""
    if checked.requires_grad and not checked.is_leaf and torch.is_grad_enabled():
        raise InvalidArgumentError(
            f"{action}: a tensor that was computed with gradients cannot be overwritten in place; "
            "do it under torch.no_grad(), or pass tensor.detach()"
        )
    return checked


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's values, detached and contiguous in memory; the tensor itself if it already is."""
    if tensor.is_contiguous() and not tensor.requires_grad and not tensor.is_neg():
        return tensor
    return tensor.detach().resolve_neg().contiguous()


def memory_of(tensor: torch.Tensor) -> tuple[int, int]:
    """(address, bytes) of a contiguous tensor."""
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def tensor_over(memory: _core.Memory, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """A tensor over the engine's memory that keeps the memory alive."""
    count = math.prod(shape)
    if count == 0:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    return torch.frombuffer(memory, dtype=dtype, count=count).view(tuple(shape))
