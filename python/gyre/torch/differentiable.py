"""Operations that carry gradients.

The loss is understood as the sum of the ranks' losses: the gradient of what a rank put in is the sum, over all ranks,
of the gradients of what they got out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gyre.errors import UnsupportedError
from gyre.torch import asynchronous
from gyre.torch._requests import ReduceOperation, Reduction
from gyre.torch.compression import Compressor
from gyre.torch.process_sets import ProcessSet, root_in, runtime_of

_LINEAR = (ReduceOperation.SUM, ReduceOperation.AVERAGE)


def _gradient_name(name: str | None) -> str | None:
    return None if name is None else f"{name}.gradient"


def _check_linear(reduction: Reduction, what: str) -> None:
    if reduction.operation not in _LINEAR:
        word = reduction.operation.name.capitalize()
        raise UnsupportedError(f"{what} with op={word} has no gradient; pass tensor.detach(), or use Sum or Average")


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        compression: type[Compressor],
        reduction: Reduction,
        process_set: ProcessSet,
        *tensors: Any,
    ) -> Any:
        ctx.arguments = (_gradient_name(name), compression, reduction, process_set)
        return tuple(_reduce(tensors, name, compression, reduction, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, None, None, None, *_reduce(gradients, *ctx.arguments))


def _reduce(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    compression: type[Compressor],
    reduction: Reduction,
    process_set: ProcessSet,
) -> list[torch.Tensor]:
    compressed = [compression.compress(tensor) for tensor in tensors]
    wire = [tensor for tensor, _ in compressed]
    handle = asynchronous.grouped(wire, name, reduction, in_place=False, process_set=process_set)
    return [compression.decompress(t, context) for t, (_, context) in zip(handle.wait(), compressed, strict=True)]


def _sum(tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
    handle = asynchronous.allreduce_async(tensor, name=name, op=ReduceOperation.SUM, process_set=process_set)
    result: torch.Tensor = handle.wait()
    return result


def allreduce(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    compression: type[Compressor],
    reduction: Reduction,
    process_set: ProcessSet,
) -> list[torch.Tensor]:
    """Sum and Average only. Backward is the same allreduce of the gradients."""
    _check_linear(reduction, "allreduce")
    return list(_Allreduce.apply(name, compression, reduction, process_set, *tensors))  # type: ignore[no-untyped-call]


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
        ctx.arguments = (root_rank, _gradient_name(name), process_set)
        return asynchronous.broadcast_async(tensor, root_rank, name, process_set).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        root_rank, name, process_set = ctx.arguments
        total = _sum(gradients[0], name, process_set)
        is_root = runtime_of(process_set).rank == root_in(process_set, root_rank, "broadcast")
        return (total if is_root else torch.zeros_like(total)), None, None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> torch.Tensor:
    """Backward: the root gets the sum of all ranks' gradients, the others zeros."""
    result: torch.Tensor = _Broadcast.apply(tensor, root_rank, name, process_set)  # type: ignore[no-untyped-call]
    return result


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: Any) -> Any:
        counts_name = None if name is None else f"{name}.rows"
        rows = torch.tensor([[tensor.shape[0] for tensor in tensors]])
        counts = asynchronous.allgather_async(rows, counts_name, process_set).wait()
        rank = runtime_of(process_set).rank
        ctx.first_rows = counts[:rank].sum(0).tolist()
        ctx.row_counts = [tensor.shape[0] for tensor in tensors]
        ctx.arguments = (_gradient_name(name), process_set)
        return tuple(asynchronous.grouped_allgather_async(tensors, name, process_set).wait())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        name, process_set = ctx.arguments
        reduction = Reduction(ReduceOperation.SUM)
        totals = asynchronous.grouped(gradients, name, reduction, in_place=False, process_set=process_set).wait()
        own = [t.narrow(0, f, n) for t, f, n in zip(totals, ctx.first_rows, ctx.row_counts, strict=True)]
        return (None, None, *own)


def allgather(tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet) -> list[torch.Tensor]:
    """Backward: each rank gets the sum of all ranks' gradients for its own rows."""
    return list(_Allgather.apply(name, process_set, *tensors))  # type: ignore[no-untyped-call]


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        compression: type[Compressor],
        reduction: Reduction,
        process_set: ProcessSet,
        *tensors: Any,
    ) -> Any:
        ctx.arguments = (_gradient_name(name), process_set)
        divisor = runtime_of(process_set).size if reduction.operation == ReduceOperation.AVERAGE else 1
        ctx.factor = reduction.prescale * reduction.postscale / divisor
        compressed = [compression.compress(tensor) for tensor in tensors]
        wire = [tensor for tensor, _ in compressed]
        factors = (reduction.prescale, reduction.postscale)
        handle = asynchronous.grouped_reducescatter_async(wire, name, reduction.operation, process_set, *factors)
        shares = zip(handle.wait(), compressed, strict=True)
        return tuple(compression.decompress(share, context) for share, (_, context) in shares)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        wholes = asynchronous.grouped_allgather_async(gradients, *ctx.arguments).wait()
        return (None, None, None, None, *(whole * ctx.factor for whole in wholes))


def reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    compression: type[Compressor],
    reduction: Reduction,
    process_set: ProcessSet,
) -> list[torch.Tensor]:
    """Sum and Average only. Backward: all ranks' gradients gathered, times what the reduction scaled by."""
    _check_linear(reduction, "reducescatter")
    apply = _Reducescatter.apply
    return list(apply(name, compression, reduction, process_set, *tensors))  # type: ignore[no-untyped-call]


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
        if splits is None:
            size = runtime_of(process_set).size
            splits = [tensor.shape[0] // size] * size
        result, received_splits = asynchronous.alltoall_async(tensor, splits, name, process_set).wait()
        ctx.arguments = (received_splits, _gradient_name(name), process_set)
        ctx.mark_non_differentiable(received_splits)
        return result, received_splits

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        returned, _ = asynchronous.alltoall_async(gradients[0], *ctx.arguments).wait()
        return returned, None, None, None


def alltoall(tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
    """Backward: the gradients go back where the rows came from."""
    result, received_splits = _Alltoall.apply(tensor, splits, name, process_set)  # type: ignore[no-untyped-call]
    return result if splits is None else (result, received_splits)
