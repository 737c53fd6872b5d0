"""Operations that carry gradients.

The loss is understood as the sum of the ranks' losses: the gradient of what a rank put in is the sum, over all ranks,
of the gradients of what they got out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gyre._runtime import current
from gyre.errors import UnsupportedError
from gyre.torch import asynchronous
from gyre.torch._requests import ReduceOperation, Reduction
from gyre.torch.compression import Compressor

_LINEAR = (ReduceOperation.SUM, ReduceOperation.AVERAGE)


def _gradient_name(name: str | None) -> str | None:
    return None if name is None else f"{name}.gradient"


def _check_linear(reduction: Reduction, what: str) -> None:
    if reduction.operation not in _LINEAR:
        word = reduction.operation.name.capitalize()
        raise UnsupportedError(f"{what} with op={word} has no gradient; pass tensor.detach(), or use Sum or Average")


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, compression: type[Compressor], reduction: Reduction, *tensors: Any) -> Any:
        ctx.arguments = (_gradient_name(name), compression, reduction)
        return tuple(_reduce(tensors, name, compression, reduction))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, None, None, *_reduce(gradients, *ctx.arguments))


def _reduce(
    tensors: Sequence[torch.Tensor], name: str | None, compression: type[Compressor], reduction: Reduction
) -> list[torch.Tensor]:
    compressed = [compression.compress(tensor) for tensor in tensors]
    handle = asynchronous.grouped([tensor for tensor, _ in compressed], name, reduction, in_place=False)
    return [compression.decompress(t, context) for t, (_, context) in zip(handle.wait(), compressed, strict=True)]


def _sum(tensor: torch.Tensor, name: str | None) -> torch.Tensor:
    result: torch.Tensor = asynchronous.allreduce_async(tensor, name=name, op=ReduceOperation.SUM).wait()
    return result


def allreduce(
    tensors: Sequence[torch.Tensor], name: str | None, compression: type[Compressor], reduction: Reduction
) -> list[torch.Tensor]:
    """Sum and Average only. Backward is the same allreduce of the gradients."""
    _check_linear(reduction, "allreduce")
    return list(_Allreduce.apply(name, compression, reduction, *tensors))  # type: ignore[no-untyped-call]


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None) -> Any:
        ctx.arguments = (root_rank, _gradient_name(name))
        return asynchronous.broadcast_async(tensor, root_rank, name).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        root_rank, name = ctx.arguments
        total = _sum(gradients[0], name)
        is_root = current().rank == root_rank
        return (total if is_root else torch.zeros_like(total)), None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None) -> torch.Tensor:
    """Backward: the root gets the sum of all ranks' gradients, the others zeros."""
    result: torch.Tensor = _Broadcast.apply(tensor, root_rank, name)  # type: ignore[no-untyped-call]
    return result


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None) -> Any:
        rows = torch.tensor([tensor.shape[0]])
        counts = asynchronous.allgather_async(rows, None if name is None else f"{name}.rows").wait()
        rank = current().rank
        ctx.first_row, ctx.row_count = int(counts[:rank].sum()), tensor.shape[0]
        ctx.name = _gradient_name(name)
        return asynchronous.allgather_async(tensor, name).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        total = _sum(gradients[0], ctx.name)
        return total.narrow(0, ctx.first_row, ctx.row_count), None


def allgather(tensor: torch.Tensor, name: str | None) -> torch.Tensor:
    """Backward: each rank gets the sum of all ranks' gradients for its own rows."""
    result: torch.Tensor = _Allgather.apply(tensor, name)  # type: ignore[no-untyped-call]
    return result


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, name: str | None, compression: type[Compressor], reduction: Reduction
    ) -> Any:
        ctx.name = _gradient_name(name)
        divisor = current().size if reduction.operation == ReduceOperation.AVERAGE else 1
        ctx.factor = reduction.prescale * reduction.postscale / divisor
        compressed, context = compression.compress(tensor)
        factors = (reduction.prescale, reduction.postscale)
        handle = asynchronous.reducescatter_async(compressed, name, reduction.operation, *factors)
        return compression.decompress(handle.wait(), context)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return asynchronous.allgather_async(gradients[0], ctx.name).wait() * ctx.factor, None, None, None


def reducescatter(
    tensor: torch.Tensor, name: str | None, compression: type[Compressor], reduction: Reduction
) -> torch.Tensor:
    """Sum and Average only. Backward: all ranks' gradients gathered, times what the reduction scaled by."""
    _check_linear(reduction, "reducescatter")
    result: torch.Tensor = _Reducescatter.apply(tensor, name, compression, reduction)  # type: ignore[no-untyped-call]
    return result


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None) -> Any:
        size = current().size
        if splits is None:
            splits = [tensor.shape[0] // size] * size
        result, received_splits = asynchronous.alltoall_async(tensor, splits, name).wait()
        ctx.received_splits, ctx.name = received_splits, _gradient_name(name)
        ctx.mark_non_differentiable(received_splits)
        return result, received_splits

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        returned, _ = asynchronous.alltoall_async(gradients[0], ctx.received_splits, ctx.name).wait()
        return returned, None, None


def alltoall(tensor: torch.Tensor, splits: Any, name: str | None) -> Any:
    """Backward: the gradients go back where the rows came from."""
    result, received_splits = _Alltoall.apply(tensor, splits, name)  # type: ignore[no-untyped-call]
    return result if splits is None else (result, received_splits)
