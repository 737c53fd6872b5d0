"""Collective operations on torch tensors that return when they are done; gyre.torch.asynchronous documents what is
common to all. If the tensor requires gradients, the forms that are not in place propagate them, scaled as in Horovod:
see gyre.torch.differentiable.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import increment_version

from gyre._job.compression import Compression, Compressor
from gyre._job.operation_argument import resolve_operation
from gyre._job.process_sets import ProcessSet, global_process_set, root_in, runtime_of
from gyre._operations import Kind, ReduceOperation, Reduction
from gyre._runtime import Runtime, current
from gyre.torch import _staged, differentiable
from gyre.torch._delegate import delegate_of
from gyre.torch._immediate import is_plain, run_allreduce, run_barrier, run_broadcast
from gyre.torch._staged import check_in_place, check_tensor
from gyre.torch._submissions import allreduce_submission, describe, run_one
from gyre.torch.asynchronous import (
    Adasum,
    allgather_async,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    broadcast_async,
    broadcast_async_,
    grouped,
    grouped_allgather_async,
    grouped_reducescatter_async,
    reducescatter_async,
)
from gyre.torch.sparse import sparse_allreduce


def _wants_gradient(tensors: Sequence[object]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)


def _compressed(
    tensors: Sequence[torch.Tensor], compression: type[Compressor], kind: Kind, name: str | None
) -> tuple[list[torch.Tensor], list[Any]]:
    """The tensors to send and their contexts. Autograd sees compress() and decompress(), as in Horovod."""
    both = [compression.compress(check_tensor(tensor, describe(kind, name))) for tensor in tensors]
    return [tensor for tensor, _ in both], [context for _, context in both]


def _decompressed(
    results: Sequence[torch.Tensor], contexts: Sequence[Any], compression: type[Compressor]
) -> list[torch.Tensor]:
    return [compression.decompress(result, context) for result, context in zip(results, contexts, strict=True)]


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """allreduce_async() and synchronize(). `compression`: the type in which the values are sent and summed."""
    operation = op if average is None and type(op) is ReduceOperation else resolve_operation(op, average)
    runtime = current() if process_set is global_process_set else runtime_of(process_set)
    if compression is Compression.none and operation is not Adasum and is_plain(tensor):
        result = torch.empty_like(tensor)
        run_allreduce(runtime, tensor, result, name, operation, prescale_factor, postscale_factor)
        return result
    reduction = Reduction(operation, prescale_factor, postscale_factor)
    if isinstance(tensor, torch.Tensor) and tensor.is_sparse and not _wants_gradient([tensor]):
        summed: torch.Tensor = sparse_allreduce(runtime, tensor, name, reduction).wait()
        return summed
    compressed, contexts = _compressed([tensor], compression, Kind.ALLREDUCE, name)
    if _wants_gradient(compressed):
        results = differentiable.allreduce(compressed, name, reduction, process_set, one=True)
    elif not compressed[0].is_cpu:
        action = describe(Kind.ALLREDUCE, name)
        results = [_reduced_elsewhere(runtime, compressed[0], action, name, reduction, process_set, in_place=False)]
    elif operation is Adasum:
        results = [allreduce_async(compressed[0], None, name, *reduction, process_set).wait()]
    else:
        results = [run_one(runtime, allreduce_submission(runtime, compressed[0], None, name, reduction))]
    return _decompressed(results, contexts, compression)[0]


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """allreduce() in place; returns `tensor`."""
    operation = op if average is None and type(op) is ReduceOperation else resolve_operation(op, average)
    runtime = current() if process_set is global_process_set else runtime_of(process_set)
    if operation is not Adasum and is_plain(tensor):
        run_allreduce(runtime, tensor, tensor, name, operation, prescale_factor, postscale_factor)
        increment_version(tensor)
        return tensor
    action = describe(Kind.ALLREDUCE, name)
    checked = check_in_place(tensor, action)
    reduction = Reduction(operation, prescale_factor, postscale_factor)
    if not checked.is_cpu:
        return _reduced_elsewhere(runtime, checked, action, name, reduction, process_set, in_place=True)
    if operation is Adasum:
        adapted: torch.Tensor = grouped([checked], name, reduction, in_place=True, process_set=process_set).wait()[0]
        return adapted
    result: torch.Tensor = run_one(runtime, allreduce_submission(runtime, checked, checked, name, reduction))
    return result


def _reduced_elsewhere(
    runtime: Runtime,
    tensor: torch.Tensor,
    action: str,
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    in_place: bool,
) -> torch.Tensor:
    """allreduce() and its in-place form, of a tensor of a device."""
    if delegate_of(runtime, [tensor]) is not None:
        form = allreduce_async_ if in_place else allreduce_async
        result: torch.Tensor = form(tensor, None, name, *reduction, process_set).wait()
        return result
    return _staged.run_reduced(
        runtime, tensor, action, lambda twin: allreduce_(twin, None, name, *reduction, process_set), in_place=in_place
    )


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """allreduce() of several tensors in one exchange."""
    reduction = Reduction(resolve_operation(op, average), prescale_factor, postscale_factor)
    compressed, contexts = _compressed(tensors, compression, Kind.ALLREDUCE, name)
    if _wants_gradient(compressed):
        results = differentiable.allreduce(compressed, name, reduction, process_set)
    else:
        results = grouped(compressed, name, reduction, in_place=False, process_set=process_set).wait()
    return _decompressed(results, contexts, compression)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """grouped_allreduce() in place; returns the tensors given."""
    reduction = Reduction(resolve_operation(op, average), prescale_factor, postscale_factor)
    results: list[torch.Tensor] = grouped(tensors, name, reduction, in_place=True, process_set=process_set).wait()
    return results


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """broadcast_async() and synchronize()."""
    if _wants_gradient([tensor]):
        return differentiable.broadcast(tensor, root_rank, name, process_set)
    runtime = runtime_of(process_set)
    action = describe(Kind.BROADCAST, name)
    checked = check_tensor(tensor, action)
    root = root_in(process_set, root_rank, action)
    if not checked.is_cpu:
        return _sent_elsewhere(runtime, checked, action, root_rank, name, process_set, in_place=False)
    return run_broadcast(runtime, checked, False, name, root)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """broadcast() in place; returns `tensor`."""
    runtime = runtime_of(process_set)
    action = describe(Kind.BROADCAST, name)
    checked = check_in_place(tensor, action)
    root = root_in(process_set, root_rank, action)
    if not checked.is_cpu:
        return _sent_elsewhere(runtime, checked, action, root_rank, name, process_set, in_place=True)
    return run_broadcast(runtime, checked, True, name, root)


def _sent_elsewhere(
    runtime: Runtime,
    tensor: torch.Tensor,
    action: str,
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
    *,
    in_place: bool,
) -> torch.Tensor:
    """broadcast() and its in-place form, of a tensor of a device."""
    if delegate_of(runtime, [tensor]) is not None:
        form = broadcast_async_ if in_place else broadcast_async
        result: torch.Tensor = form(tensor, root_rank, name, process_set).wait()
        return result
    root = root_in(process_set, root_rank, action)
    on_host = functools.partial(run_broadcast, runtime, in_place=True, name=name, root=root)
    return _staged.run_reduced(runtime, tensor, action, on_host, in_place=in_place)


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """allgather_async() and synchronize()."""
    if _wants_gradient([tensor]):
        return differentiable.allgather([tensor], name, process_set, one=True)[0]
    result: torch.Tensor = allgather_async(tensor, name, process_set).wait()
    return result


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """allgather() of several tensors in one exchange."""
    if _wants_gradient(tensors):
        return differentiable.allgather(tensors, name, process_set)
    results: list[torch.Tensor] = grouped_allgather_async(tensors, name, process_set).wait()
    return results


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """reducescatter_async() and synchronize()."""
    reduction = Reduction(resolve_operation(op, None), prescale_factor, postscale_factor)
    compressed, context = compression.compress(check_tensor(tensor, describe(Kind.REDUCESCATTER, name)))
    if _wants_gradient([compressed]):
        result = differentiable.reducescatter([compressed], name, reduction, process_set, one=True)[0]
    else:
        factors = (prescale_factor, postscale_factor)
        result = reducescatter_async(compressed, name, reduction.operation, process_set, *factors).wait()
    reduced: torch.Tensor = compression.decompress(result, context)
    return reduced


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """reducescatter() of several tensors in one exchange."""
    reduction = Reduction(resolve_operation(op, None), prescale_factor, postscale_factor)
    compressed, contexts = _compressed(tensors, compression, Kind.REDUCESCATTER, name)
    if _wants_gradient(compressed):
        results = differentiable.reducescatter(compressed, name, reduction, process_set)
    else:
        factors = (prescale_factor, postscale_factor)
        results = grouped_reducescatter_async(compressed, name, reduction.operation, process_set, *factors).wait()
    return _decompressed(results, contexts, compression)


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """alltoall_async() and synchronize(): a tensor, or (tensor, received_splits) when splits are given."""
    if _wants_gradient([tensor]):
        both = differentiable.alltoall(tensor, splits, name, process_set)
    else:
        both = alltoall_async(tensor, splits, name, process_set).wait()
    return both[0] if splits is None else both


def barrier(process_set: ProcessSet | str | None = global_process_set, name: str | None = None) -> None:
    """Returns when every rank of the set has called it. (A name may also come first.)"""
    if isinstance(process_set, str):
        name, process_set = process_set, None
    run_barrier(runtime_of(process_set or global_process_set), name)
