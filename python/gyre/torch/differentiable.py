"""Operations that carry gradients.

The loss is understood as the sum of the ranks' losses: the gradient of what a rank put in is the sum, over all ranks,
of the gradients of what they got out of it. Forward is the same operation, of the same name, as without gradients, for
the tensor may need one on some ranks only; backward is collective. Backward can be differentiated in its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gyre.errors import UnsupportedError
from gyre.torch import asynchronous
from gyre.torch._requests import Kind, ReduceOperation, Reduction, describe
from gyre.torch._tensors import check_tensor
from gyre.torch.compression import Compression, Compressor
from gyre.torch.process_sets import ProcessSet, root_in, runtime_of

_LINEAR = (ReduceOperation.SUM, ReduceOperation.AVERAGE)
_SUM = Reduction(ReduceOperation.SUM)


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
        one: bool,
        *tensors: Any,
    ) -> Any:
        ctx.arguments = (_gradient_name(name), compression, reduction, process_set, one)
        return tuple(_reduce(tensors, name, compression, reduction, process_set, one=one))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        *arguments, one = ctx.arguments
        _check_linear(ctx.arguments[2], "allreduce")
        return (None, None, None, None, None, *allreduce(gradients, *arguments, one=one))


def _reduce(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    compression: type[Compressor],
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    one: bool,
) -> list[torch.Tensor]:
    compressed = [compression.compress(check_tensor(t, describe(Kind.ALLREDUCE, name))) for t in tensors]
    wire = [tensor for tensor, _ in compressed]
    if one:
        results = [asynchronous.allreduce_async(wire[0], None, name, *reduction, process_set).wait()]
    else:
        results = asynchronous.grouped(wire, name, reduction, in_place=False, process_set=process_set).wait()
    return [compression.decompress(t, context) for t, (_, context) in zip(results, compressed, strict=True)]


def allreduce(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    compression: type[Compressor],
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    one: bool = False,
) -> list[torch.Tensor]:
    """Backward, for Sum and Average only, is the same allreduce of the gradients. `one`: not as a group of one."""
    apply = _Allreduce.apply
    return list(apply(name, compression, reduction, process_set, one, *tensors))  # type: ignore[no-untyped-call]


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
        ctx.arguments = (root_rank, _gradient_name(name), process_set)
        return asynchronous.broadcast_async(tensor, root_rank, name, process_set).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        root_rank, name, process_set = ctx.arguments
        total = allreduce(gradients, name, Compression.none, _SUM, process_set, one=True)[0]
        is_root = runtime_of(process_set).rank == root_in(process_set, root_rank, "broadcast")
        # Not new zeros: who differentiates once more needs every rank in the sum's own backward.
        return torch.where(torch.tensor(is_root), total, total.new_zeros(())), None, None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> torch.Tensor:
    """Backward: the root gets the sum of all ranks' gradients, the others zeros."""
    result: torch.Tensor = _Broadcast.apply(tensor, root_rank, name, process_set)  # type: ignore[no-untyped-call]
    return result


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, one: bool, *tensors: Any) -> Any:
        ctx.row_counts = [tensor.shape[0] for tensor in tensors]
        ctx.arguments = (_gradient_name(name), process_set)
        if one:
            return (asynchronous.allgather_async(tensors[0], name, process_set).wait(),)
        return tuple(asynchronous.grouped_allgather_async(tensors, name, process_set).wait())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        name, process_set = ctx.arguments
        counts_name = None if name is None else f"{name}.rows"
        counts = asynchronous.allgather_async(torch.tensor([ctx.row_counts]), counts_name, process_set).wait()
        first_rows = counts[: runtime_of(process_set).rank].sum(0).tolist()
        totals = allreduce(gradients, name, Compression.none, _SUM, process_set)
        own = [t.narrow(0, f, n) for t, f, n in zip(totals, first_rows, ctx.row_counts, strict=True)]
        return (None, None, None, *own)


def allgather(
    tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet, *, one: bool = False
) -> list[torch.Tensor]:
    """Backward: each rank gets the sum of all ranks' gradients for its own rows. `one`: not as a group of one."""
    rows = [asynchronous.rows_of(check_tensor(tensor, describe(Kind.ALLGATHER, name))) for tensor in tensors]
    return list(_Allgather.apply(name, process_set, one, *rows))  # type: ignore[no-untyped-call]


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        compression: type[Compressor],
        reduction: Reduction,
        process_set: ProcessSet,
        one: bool,
        *tensors: Any,
    ) -> Any:
        ctx.arguments, ctx.reduction = (_gradient_name(name), process_set), reduction
        divisor = runtime_of(process_set).size if reduction.operation == ReduceOperation.AVERAGE else 1
        ctx.factor = reduction.prescale * reduction.postscale / divisor
        compressed = [compression.compress(check_tensor(t, describe(Kind.REDUCESCATTER, name))) for t in tensors]
        wire = [tensor for tensor, _ in compressed]
        options = (name, reduction.operation, process_set, reduction.prescale, reduction.postscale)
        if one:
            results = [asynchronous.reducescatter_async(wire[0], *options).wait()]
        else:
            results = asynchronous.grouped_reducescatter_async(wire, *options).wait()
        shares = zip(results, compressed, strict=True)
        return tuple(compression.decompress(share, context) for share, (_, context) in shares)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _check_linear(ctx.reduction, "reducescatter")
        wholes = allgather(gradients, *ctx.arguments)
        return (None, None, None, None, None, *(whole * ctx.factor for whole in wholes))


def reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    compression: type[Compressor],
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    one: bool = False,
) -> list[torch.Tensor]:
    """Backward, for Sum and Average only: all ranks' gradients gathered, times what the reduction scaled by. `one`: not
    as a group of one."""
    apply = _Reducescatter.apply
    return list(apply(name, compression, reduction, process_set, one, *tensors))  # type: ignore[no-untyped-call]


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
        ctx.arguments = (None, _gradient_name(name), process_set)
        if splits is None:
            return asynchronous.alltoall_async(tensor, None, name, process_set).wait(), None
        result, received_splits = asynchronous.alltoall_async(tensor, splits, name, process_set).wait()
        ctx.arguments = (received_splits, *ctx.arguments[1:])
        ctx.mark_non_differentiable(received_splits)
        return result, received_splits

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        returned = alltoall(gradients[0], *ctx.arguments)
        return (returned if ctx.arguments[0] is None else returned[0]), None, None, None


def alltoall(tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
    """Backward: the gradients go back where the rows came from."""
    result, received_splits = _Alltoall.apply(tensor, splits, name, process_set)  # type: ignore[no-untyped-call]
    return result if splits is None else (result, received_splits)
