"""Collective operations on torch tensors that return at once, with a handle. Every rank must take part in each; `name`
pairs the ranks' calls.

Common to all: tensors have any shape (including 0-dimensional and empty) and memory layout, and type uint8, int8,
int16, int32, int64, float16, bfloat16, float32, float64 or bool. Those of a device go to the device's own library, or
through host memory (docs/guide/gpu.md); the current stream, not the host, waits for the results. Without a name, a call
gets the next number of its kind, so unnamed calls of one kind must come in the same order on every rank; named ones can
come in any order. If ranks disagree about type, shape, operation or root, all get MismatchError, whose message shows
both sides; a name that is already in flight is InvalidArgumentError (a ValueError). All functions are thread-safe. The
tensor must not be changed before the handle is done.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import torch

from gyre._job.operation_argument import resolve_operation
from gyre._job.process_sets import ProcessSet, global_process_set, root_in, runtime_of
from gyre._operations import Kind, ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre.core import _core
from gyre.errors import InvalidArgumentError
from gyre.torch import _delegated, _staged
from gyre.torch._immediate import is_plain, submit_allreduce
from gyre.torch._staged import check_in_place, check_tensor
from gyre.torch._submissions import (
    Batch,
    OneTimeName,
    Submission,
    allreduce_submission,
    barrier_submission,
    broadcast_submission,
    describe,
    gathering_submission,
    reducescatter_submission,
    submit_one,
)
from gyre.torch.adaptive_sum import adasum
from gyre.torch.handle import Handle
from gyre.torch.sparse import sparse_allreduce

Average = ReduceOperation.AVERAGE
Sum = ReduceOperation.SUM
Min = ReduceOperation.MIN
Max = ReduceOperation.MAX
Product = ReduceOperation.PRODUCT
Adasum = ReduceOperation.ADASUM


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces the ranks' tensors (same shape and type on all) into a new one; the handle's result.

    `op`: Average (default; integers are truncated towards zero), Sum, Min, Max, Product. The result is
    postscale_factor · op(prescale_factor · tensor). Every rank gets the same bits. `average` is the deprecated form.
    """
    runtime = runtime_of(process_set)
    operation = resolve_operation(op, average)
    if operation != Adasum and is_plain(tensor):
        return submit_allreduce(runtime, tensor, name, operation, prescale_factor, postscale_factor)
    reduction = Reduction(operation, prescale_factor, postscale_factor)
    if isinstance(tensor, torch.Tensor) and tensor.is_sparse:
        return sparse_allreduce(runtime, tensor, name, reduction)
    action = describe(Kind.ALLREDUCE, name)
    checked = check_tensor(tensor, action)
    if not checked.is_cpu:
        return _reduced_elsewhere(runtime, checked, action, name, reduction, process_set, in_place=False)
    if reduction.operation == Adasum:
        return adasum(runtime, [checked], name, reduction, in_place=False, one=True)
    return submit_one(runtime, allreduce_submission(runtime, checked, None, name, reduction))


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """allreduce_async() that writes the result to `tensor`, at the latest when the handle is synchronized."""
    runtime = runtime_of(process_set)
    reduction = Reduction(resolve_operation(op, average), prescale_factor, postscale_factor)
    action = describe(Kind.ALLREDUCE, name)
    checked = check_in_place(tensor, action)
    if not checked.is_cpu:
        return _reduced_elsewhere(runtime, checked, action, name, reduction, process_set, in_place=True)
    if reduction.operation == Adasum:
        return adasum(runtime, [checked], name, reduction, in_place=True, one=True)
    return submit_one(runtime, allreduce_submission(runtime, checked, checked, name, reduction))


def _reduced_elsewhere(
    runtime: Runtime,
    tensor: torch.Tensor,
    action: str,
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    in_place: bool,
) -> Handle:
    """allreduce_async() and its in-place form, of a tensor of a device."""

    def stage(name: str | None) -> Handle:
        return _staged.reduced_one(
            runtime,
            tensor,
            action,
            lambda twin: allreduce_async_(twin, None, name, *reduction, process_set),
            in_place=in_place,
        )

    delegated = _delegated.allreduce(
        runtime, [tensor], lambda: [name], reduction, action, stage, in_place=in_place, one=True
    )
    return stage(name) if delegated is None else delegated


def _member_names(name: str | None, runtime: Runtime, count: int) -> list[str]:
    """Without the count, so that ranks with different numbers of tensors are paired, and get an error."""
    numbers = range(1, count + 1)
    if name is not None:
        return [type(name)(f"{name}_{number}") for number in numbers]
    stem = f"grouped.noname.{runtime.next_number('grouped')}"
    return [OneTimeName(f"{stem}_{number}") for number in numbers]


def grouped(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: Reduction,
    *,
    in_place: bool,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """grouped_allreduce_async() and its in-place form."""
    runtime = runtime_of(process_set)
    check = check_in_place if in_place else check_tensor
    if any(map(_staged.is_on_device, tensors)):
        action = describe(Kind.ALLREDUCE, name)
        every = [check(tensor, action) for tensor in tensors]

        def stage(name: str | None) -> Handle:
            return _staged.reduced(
                runtime,
                every,
                action,
                lambda twins: grouped(twins, name, reduction, in_place=True, process_set=process_set),
                in_place=in_place,
            )

        delegated = _delegated.allreduce(
            runtime,
            every,
            lambda: _member_names(name, runtime, len(every)),
            reduction,
            action,
            stage,
            in_place=in_place,
            one=False,
        )
        return stage(name) if delegated is None else delegated
    if reduction.operation == Adasum:
        all_checked = [check(tensor, describe(Kind.ALLREDUCE, name)) for tensor in tensors]
        return adasum(runtime, all_checked, name, reduction, in_place=in_place, one=False)
    batch = Batch(runtime)
    for tensor, member in zip(tensors, _member_names(name, runtime, len(tensors)), strict=True):
        checked = check(tensor, describe(Kind.ALLREDUCE, member))
        output = checked if in_place else None
        batch.submissions.append(allreduce_submission(runtime, checked, output, member, reduction))
    return batch.submit()


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """allreduce_async() of several tensors, which complete together; the handle's result is the list of new tensors."""
    reduction = Reduction(resolve_operation(op, average), prescale_factor, postscale_factor)
    return grouped(tensors, name, reduction, in_place=False, process_set=process_set)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """grouped_allreduce_async() in place."""
    reduction = Reduction(resolve_operation(op, average), prescale_factor, postscale_factor)
    return grouped(tensors, name, reduction, in_place=True, process_set=process_set)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """The values of `root_rank`'s tensor (same shape and type on all ranks) in a new one; the handle's result."""
    runtime = runtime_of(process_set)
    action = describe(Kind.BROADCAST, name)
    checked = check_tensor(tensor, action)
    root = root_in(process_set, root_rank, action)
    if not checked.is_cpu:
        return _sent_elsewhere(runtime, checked, action, root_rank, name, process_set, in_place=False)
    return submit_one(runtime, broadcast_submission(runtime, checked, None, name, root))


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """broadcast_async() that writes the root's values to `tensor`."""
    runtime = runtime_of(process_set)
    action = describe(Kind.BROADCAST, name)
    checked = check_in_place(tensor, action)
    root = root_in(process_set, root_rank, action)
    if not checked.is_cpu:
        return _sent_elsewhere(runtime, checked, action, root_rank, name, process_set, in_place=True)
    return submit_one(runtime, broadcast_submission(runtime, checked, checked, name, root))


def _sent_elsewhere(
    runtime: Runtime,
    tensor: torch.Tensor,
    action: str,
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
    *,
    in_place: bool,
) -> Handle:
    """broadcast_async() and its in-place form, of a tensor of a device."""

    def stage(name: str | None) -> Handle:
        return _staged.reduced_one(
            runtime,
            tensor,
            action,
            lambda twin: broadcast_async_(twin, root_rank, name, process_set),
            in_place=in_place,
        )

    root = root_in(process_set, root_rank, action)
    delegated = _delegated.broadcast(runtime, [tensor], [name], root, action, stage, in_place=in_place, one=True)
    return stage(name) if delegated is None else delegated


def _without_splits(submission: Submission) -> Submission:
    finish = submission.finish
    submission.finish = lambda handle: finish(handle)[0]
    return submission


def rows_of(tensor: torch.Tensor) -> torch.Tensor:
    """A 0-dimensional tensor counts as one row."""
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """All ranks' tensors, concatenated along the first dimension in rank order; the handle's result.

    The first dimension can differ between ranks; the others and the type cannot. 0-dimensional ones count as one row.
    """
    runtime = runtime_of(process_set)
    action = describe(Kind.ALLGATHER, name)
    checked = rows_of(check_tensor(tensor, action))
    if not checked.is_cpu:

        def stage(name: str | None) -> Handle:
            return _staged.gathered_one(runtime, checked, action, lambda twin: allgather_async(twin, name, process_set))

        delegated = _delegated.allgather(runtime, [checked], lambda: [name], action, stage, one=True)
        return stage(name) if delegated is None else delegated
    return submit_one(runtime, _without_splits(gathering_submission(runtime, Kind.ALLGATHER, checked, name)))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """allgather_async() of several tensors, which complete together; the handle's result is the list of results."""
    runtime = runtime_of(process_set)
    if any(map(_staged.is_on_device, tensors)):
        action = describe(Kind.ALLGATHER, name)
        every = [rows_of(check_tensor(tensor, action)) for tensor in tensors]

        def stage(name: str | None) -> Handle:
            return _staged.gathered(
                runtime, every, action, lambda twins: grouped_allgather_async(twins, name, process_set)
            )

        names = functools.partial(_member_names, name, runtime, len(every))
        delegated = _delegated.allgather(runtime, every, names, action, stage, one=False)
        return stage(name) if delegated is None else delegated
    batch = Batch(runtime)
    for tensor, member in zip(tensors, _member_names(name, runtime, len(tensors)), strict=True):
        checked = rows_of(check_tensor(tensor, describe(Kind.ALLGATHER, member)))
        batch.submissions.append(_without_splits(gathering_submission(runtime, Kind.ALLGATHER, checked, member)))
    return batch.submit()


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOperation | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """allreduce_async() of sparse (COO) tensors, whose entries can be at different positions on every rank: only the
    entries are sent. The handle's result is coalesced. Sum and Average only."""
    return sparse_allreduce(runtime_of(process_set), tensor, name, Reduction(resolve_operation(op, None)))


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOperation | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Reduces the ranks' tensors and gives each rank its share of the first dimension; the handle's result.

    Rank r of n gets rows/n rows, the first rows % n ranks one more. `op` as in allreduce_async().
    """
    runtime = runtime_of(process_set)
    action = describe(Kind.REDUCESCATTER, name)
    checked = check_tensor(tensor, action)
    reduction = Reduction(resolve_operation(op, None), prescale_factor, postscale_factor)
    if not checked.is_cpu:
        factors = (prescale_factor, postscale_factor)

        def stage(name: str | None) -> Handle:
            return _staged.gathered_one(
                runtime, checked, action, lambda twin: reducescatter_async(twin, name, op, process_set, *factors)
            )

        delegated = _delegated.reducescatter(runtime, [checked], lambda: [name], reduction, action, stage, one=True)
        return stage(name) if delegated is None else delegated
    return submit_one(runtime, _without_splits(reducescatter_submission(runtime, checked, name, reduction)))


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: ReduceOperation | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """reducescatter_async() of several tensors, which complete together; the handle's result is the list of shares."""
    runtime = runtime_of(process_set)
    reduction = Reduction(resolve_operation(op, None), prescale_factor, postscale_factor)
    if any(map(_staged.is_on_device, tensors)):
        action = describe(Kind.REDUCESCATTER, name)
        every = [check_tensor(tensor, action) for tensor in tensors]
        factors = (prescale_factor, postscale_factor)

        def stage(name: str | None) -> Handle:
            return _staged.gathered(
                runtime,
                every,
                action,
                lambda twins: grouped_reducescatter_async(twins, name, op, process_set, *factors),
            )

        names = functools.partial(_member_names, name, runtime, len(every))
        delegated = _delegated.reducescatter(runtime, every, names, reduction, action, stage, one=False)
        return stage(name) if delegated is None else delegated
    batch = Batch(runtime)
    for tensor, member in zip(tensors, _member_names(name, runtime, len(tensors)), strict=True):
        checked = check_tensor(tensor, describe(Kind.REDUCESCATTER, member))
        batch.submissions.append(_without_splits(reducescatter_submission(runtime, checked, member, reduction)))
    return batch.submit()


def _split_numbers(splits: torch.Tensor | Sequence[int], action: str) -> list[int]:
    numbers = splits.tolist() if isinstance(splits, torch.Tensor) else splits
    try:
        return [operator.index(number) for number in numbers]
    except TypeError as error:
        raise InvalidArgumentError(f"{action}: splits must be integers, one per rank, not {numbers!r}") from error


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Sends splits[r] rows of `tensor` to rank r, in order. The handle's result is (tensor, received_splits): the rows
    from all ranks, in order, and how many came from each.

    `splits`: integers, one per rank. Without them the rows are distributed evenly, and their number must be a multiple
    of the number of ranks. received_splits is an int32 tensor, or an int64 one if `splits` is.
    """
    runtime = runtime_of(process_set)
    action = describe(Kind.ALLTOALL, name)
    checked = check_tensor(tensor, action)
    numbers = [] if splits is None else _split_numbers(splits, action)
    dtype = torch.int64 if isinstance(splits, torch.Tensor) and splits.dtype == torch.int64 else torch.int32
    if not checked.is_cpu:

        def stage(name: str | None) -> Handle:
            return _staged.gathered_one(
                runtime, checked, action, lambda twin: alltoall_async(twin, splits, name, process_set)
            )

        delegated = _delegated.alltoall(runtime, checked, numbers, name, action, stage, dtype)
        return stage(name) if delegated is None else delegated
    submission = gathering_submission(runtime, Kind.ALLTOALL, checked, name, splits=numbers)
    finish = submission.finish

    def finish_with_splits(handle: _core.Handle) -> tuple[torch.Tensor, torch.Tensor]:
        result, received = finish(handle)
        return result, torch.tensor(received, dtype=dtype, device="cpu")

    submission.finish = finish_with_splits
    return submit_one(runtime, submission)


def barrier_async(name: str | None = None, process_set: ProcessSet = global_process_set) -> Handle:
    """The handle is done when every rank has made this call."""
    runtime = runtime_of(process_set)
    return submit_one(runtime, barrier_submission(runtime, name))
