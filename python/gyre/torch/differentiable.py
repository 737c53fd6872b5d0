"""Operations that carry gradients, scaled as Horovod scales them, so that a script keeps its learning rate.

| operation | backward |
|---|---|
| allreduce | the same allreduce of the gradients, with its operation and factors |
| broadcast | the root gets the average of all ranks' gradients, the others zeros |
| allgather | each rank gets the average of all ranks' gradients of its own rows |
| reducescatter | all ranks' gradients gathered, times both factors, and with Sum times the number of ranks |
| alltoall | the gradients return to where the rows came from |

Forward is the same operation, with the same name, as without gradients, because the tensor may need one on some ranks
only; backward is collective. Backward can itself be differentiated. Compression is not handled here: compressors are
differentiable functions around these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gyre._job.process_sets import ProcessSet, root_in, runtime_of
from gyre._operations import Kind, ReduceOperation, Reduction
from gyre.errors import UnsupportedError
from gyre.torch import asynchronous
from gyre.torch._staged import check_tensor
from gyre.torch._submissions import describe

_LINEAR = (ReduceOperation.SUM, ReduceOperation.AVERAGE)
_AVERAGE = Reduction(ReduceOperation.AVERAGE)


def _gradient_name(name: str | None) -> str | None:
    return None if name is None else f"{name}.gradient"


def _check_linear(reduction: Reduction, what: str) -> None:
    if reduction.operation not in _LINEAR:
        word = reduction.operation.name.capitalize()
        raise UnsupportedError(f"{what} with op={word} has no gradient; pass tensor.detach(), or use Sum or Average")


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str | None, reduction: Reduction, process_set: ProcessSet, one: bool, *tensors: Any
    ) -> Any:
        ctx.arguments, ctx.one = (_gradient_name(name), reduction, process_set), one
        checked = [check_tensor(tensor, describe(Kind.ALLREDUCE, name)) for tensor in tensors]
        if one:
            return (asynchronous.allreduce_async(checked[0], None, name, *reduction, process_set).wait(),)
        return tuple(asynchronous.grouped(checked, name, reduction, in_place=False, process_set=process_set).wait())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _check_linear(ctx.arguments[1], "allreduce")
        return (None, None, None, None, *allreduce(gradients, *ctx.arguments, one=ctx.one))


def allreduce(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    one: bool = False,
) -> list[torch.Tensor]:
    """Backward is for Sum and Average only. `one`: not as a group of one."""
    return list(_Allreduce.apply(name, reduction, process_set, one, *tensors))  # type: ignore[no-untyped-call]


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
        ctx.arguments = (root_rank, _gradient_name(name), process_set)
        return asynchronous.broadcast_async(tensor, root_rank, name, process_set).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        root_rank, name, process_set = ctx.arguments
        average = allreduce(gradients, name, _AVERAGE, process_set, one=True)[0]
        is_root = runtime_of(process_set).rank == root_in(process_set, root_rank, "broadcast")
        # Not new zeros: a second differentiation needs every rank in the average's own backward.
        chosen = torch.where(torch.full((), is_root, device=average.device), average, average.new_zeros(()))
        return chosen, None, None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> torch.Tensor:
    """The root's values on every rank."""
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
        counts = asynchronous.allgather_async(
            torch.tensor([ctx.row_counts], device="cpu"), counts_name, process_set
        ).wait()
        first_rows = counts[: runtime_of(process_set).rank].sum(0).tolist()
        averages = allreduce(gradients, name, _AVERAGE, process_set)
        own = [average.narrow(0, f, n) for average, f, n in zip(averages, first_rows, ctx.row_counts, strict=True)]
        return (None, None, None, *own)


def allgather(
    tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet, *, one: bool = False
) -> list[torch.Tensor]:
    """`one`: not as a group of one."""
    rows = [asynchronous.rows_of(check_tensor(tensor, describe(Kind.ALLGATHER, name))) for tensor in tensors]
    return list(_Allgather.apply(name, process_set, one, *rows))  # type: ignore[no-untyped-call]


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str | None, reduction: Reduction, process_set: ProcessSet, one: bool, *tensors: Any
    ) -> Any:
        ctx.arguments, ctx.reduction, ctx.one = (_gradient_name(name), process_set), reduction, one
        options = (name, reduction.operation, process_set, reduction.prescale, reduction.postscale)
        checked = [check_tensor(tensor, describe(Kind.REDUCESCATTER, name)) for tensor in tensors]
        if one:
            return (asynchronous.reducescatter_async(checked[0], *options).wait(),)
        return tuple(asynchronous.grouped_reducescatter_async(checked, *options).wait())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _check_linear(ctx.reduction, "reducescatter")
        size = runtime_of(ctx.arguments[1]).size
        summed = ctx.reduction.operation == ReduceOperation.SUM
        # One after the other, so that the products are rounded as in Horovod.
        for factor in (size if summed else 1, ctx.reduction.prescale, ctx.reduction.postscale):
            gradients = tuple(gradient if factor == 1 else gradient * factor for gradient in gradients)
        return (None, None, None, None, *allgather(gradients, *ctx.arguments, one=ctx.one))


def reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    one: bool = False,
) -> list[torch.Tensor]:
    """Backward is for Sum and Average only. `one`: not as a group of one."""
    return list(_Reducescatter.apply(name, reduction, process_set, one, *tensors))  # type: ignore[no-untyped-call]


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
        result, received_splits = asynchronous.alltoall_async(tensor, splits, name, process_set).wait()
        # Even if none were given: the ranks may have had different numbers of rows.
        ctx.arguments = (received_splits, _gradient_name(name), process_set)
        ctx.mark_non_differentiable(received_splits)
        return result, received_splits

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return alltoall(gradients[0], *ctx.arguments)[0], None, None, None


def alltoall(
    tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor]:
    """(tensor, received_splits)"""
    result, received = _Alltoall.apply(tensor, splits, name, process_set)  # type: ignore[no-untyped-call]
    return result, received
