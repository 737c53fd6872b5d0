"""Collective operations on torch tensors that return when they are done; gyre.torch.asynchronous says what is common to
all. Where the tensor requires gradients, the plain (not in-place) forms carry them: see gyre.torch.differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gyre._runtime import current
from gyre.torch import differentiable
from gyre.torch._requests import (
    Kind,
    ReduceOperation,
    Reduction,
    allreduce_submission,
    broadcast_submission,
    describe,
    resolve_operation,
    submit_one,
)
from gyre.torch._tensors import check_in_place, check_tensor
from gyre.torch.asynchronous import (
    allgather_async,
    alltoall_async,
    barrier_async,
    grouped,
    reducescatter_async,
    rows_of,
)
from gyre.torch.compression import Compression, Compressor


def _wants_gradient(tensors: Sequence[object]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """allreduce_async() and synchronize(). `compression`: the type in which the values travel and are summed."""
    reduction = Reduction(resolve_operation(op, average), prescale_factor, postscale_factor)
    if _wants_gradient([tensor]):
        return differentiable.allreduce([tensor], name, compression, reduction)[0]
    runtime = current()
    checked = check_tensor(tensor, describe(Kind.ALLREDUCE, name))
    compressed, context = compression.compress(checked)
    submission = allreduce_submission(runtime, compressed, None, name, reduction)
    handle = submit_one(runtime, submission, at_once=True)
    return compression.decompress(handle.wait(), context)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """allreduce() in place; returns `tensor`."""
    operation = resolve_operation(op, average)
    runtime = current()
    checked = check_in_place(tensor, describe(Kind.ALLREDUCE, name))
    reduction = Reduction(operation, prescale_factor, postscale_factor)
    submission = allreduce_submission(runtime, checked, checked, name, reduction)
    result: torch.Tensor = submit_one(runtime, submission, at_once=True).wait()
    return result


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """allreduce() of several tensors in one exchange."""
    reduction = Reduction(resolve_operation(op, average), prescale_factor, postscale_factor)
    if _wants_gradient(tensors):
        return differentiable.allreduce(tensors, name, compression, reduction)
    compressed = [compression.compress(check_tensor(t, describe(Kind.ALLREDUCE, name))) for t in tensors]
    results = grouped([tensor for tensor, _ in compressed], name, reduction, in_place=False).wait()
    return [compression.decompress(t, context) for t, (_, context) in zip(results, compressed, strict=True)]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """grouped_allreduce() in place; returns the tensors given."""
    reduction = Reduction(resolve_operation(op, average), prescale_factor, postscale_factor)
    results: list[torch.Tensor] = grouped(tensors, name, reduction, in_place=True).wait()
    return results


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """broadcast_async() and synchronize()."""
    if _wants_gradient([tensor]):
        return differentiable.broadcast(tensor, root_rank, name)
    runtime = current()
    checked = check_tensor(tensor, describe(Kind.BROADCAST, name))
    submission = broadcast_submission(runtime, checked, None, name, root_rank)
    result: torch.Tensor = submit_one(runtime, submission, at_once=True).wait()
    return result


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """broadcast() in place; returns `tensor`."""
    runtime = current()
    checked = check_in_place(tensor, describe(Kind.BROADCAST, name))
    submission = broadcast_submission(runtime, checked, checked, name, root_rank)
    result: torch.Tensor = submit_one(runtime, submission, at_once=True).wait()
    return result


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """allgather_async() and synchronize()."""
    if _wants_gradient([tensor]):
        return differentiable.allgather(rows_of(tensor), name)
    result: torch.Tensor = allgather_async(tensor, name).wait()
    return result


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """reducescatter_async() and synchronize()."""
    if _wants_gradient([tensor]):
        reduction = Reduction(resolve_operation(op, None), prescale_factor, postscale_factor)
        return differentiable.reducescatter(tensor, name, compression, reduction)
    compressed, context = compression.compress(check_tensor(tensor, describe(Kind.REDUCESCATTER, name)))
    result = reducescatter_async(compressed, name, op, prescale_factor, postscale_factor).wait()
    return compression.decompress(result, context)


def alltoall(tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None = None, name: str | None = None) -> Any:
    """alltoall_async() and synchronize(): a tensor, or (tensor, received_splits) when splits are given."""
    if _wants_gradient([tensor]):
        return differentiable.alltoall(tensor, splits, name)
    return alltoall_async(tensor, splits, name).wait()


def barrier(name: str | None = None) -> None:
    """Returns when every rank has called it."""
    barrier_async(name).wait()
