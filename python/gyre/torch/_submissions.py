"""Operations of gyre.torch before submission to the engine: their names, their requests, and how their results are
handled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gyre._operations import SUM, Kind, ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre._tensors.memory import dense, tensor_over
from gyre._tensors.requests import make_request
from gyre.core import _core
from gyre.errors import InvalidArgumentError
from gyre.torch.handle import Handle


class OneTimeName(str):
    """A name that will not be used again, so the engine need not learn it."""

    __slots__ = ()


def operation_name(runtime: Runtime, kind: Kind, name: str | None) -> tuple[str, bool]:
    """("allreduce.NAME", whether it is transient); without a name, one made from a counter."""
    prefix = kind.word
    if name is None:
        return f"{prefix}.noname.{runtime.next_number(prefix)}", True
    return f"{prefix}.{name}", isinstance(name, OneTimeName)


def describe(kind: Kind, name: str | None) -> str:
    """The description of an operation in messages before it has been submitted."""
    return f"{kind.word} of '{name}'" if name is not None else kind.word


@dataclass(slots=True)
class Submission:
    """One operation before submission: the request, the memory it uses, and how its result is handled."""

    request: _core.Request
    memory: list[torch.Tensor]
    finish: Callable[[_core.Handle], Any]


@dataclass
class Batch:
    """Operations that go to the engine in one call and share a handle."""

    runtime: Runtime
    submissions: list[Submission] = field(default_factory=list)

    def submit(self) -> Handle:
        """A handle for the list of all results. The operations start when all are submitted, and complete together."""
        requests = [submission.request for submission in self.submissions]
        handles = self.runtime.core.submit_group(requests)
        finishes = [submission.finish for submission in self.submissions]

        def finish(done: Sequence[_core.Handle]) -> list[Any]:
            return [finish_one(handle) for finish_one, handle in zip(finishes, done, strict=True)]

        memory = [submission.memory for submission in self.submissions]
        return Handle(self.runtime, handles, memory, finish)


def _handle_of(runtime: Runtime, handle: _core.Handle, submission: Submission) -> Handle:
    return Handle(runtime, [handle], submission.memory, lambda done: submission.finish(done[0]))


def submit_one(runtime: Runtime, submission: Submission) -> Handle:
    """A handle for the result of one operation."""
    return _handle_of(runtime, runtime.core.submit(submission.request), submission)


def run_one(runtime: Runtime, submission: Submission) -> Any:
    """The result of one operation. If the ranks arrive at the same time, this thread does it, and no handle is made."""
    handle = runtime.core.run_or_submit(submission.request)
    if not handle.done():
        return _handle_of(runtime, handle, submission).wait()
    handle.wait()  # Raises what made it fail.
    return submission.finish(handle)


def copy_back(target: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Copies what the engine wrote into `values` to `target`, unless that is the same memory."""
    if values is target or (values.data_ptr() == target.data_ptr() and target.is_contiguous()):
        torch.autograd.graph.increment_version(target)
    else:
        with torch.no_grad():
            target.copy_(values)
    return target


def allreduce_submission(
    runtime: Runtime, tensor: torch.Tensor, output: torch.Tensor | None, name: str | None, reduction: Reduction
) -> Submission:
    """`output`: None for a new tensor, `tensor` itself for the in-place form."""
    source = dense(tensor)
    values = source if output is not None else torch.empty_like(source)
    full_name, transient = operation_name(runtime, Kind.ALLREDUCE, name)
    request = make_request(
        Kind.ALLREDUCE,
        full_name,
        source,
        source.shape,
        source=source,
        target=values,
        reduction=reduction,
        transient=transient,
    )
    return Submission(request, [source, values], lambda _: values if output is None else copy_back(output, values))


def broadcast_submission(
    runtime: Runtime, tensor: torch.Tensor, output: torch.Tensor | None, name: str | None, root_rank: int
) -> Submission:
    """`output`: None for a new tensor, `tensor` itself for the in-place form."""
    source = dense(tensor)
    values = source if output is not None else torch.empty_like(source)
    full_name, transient = operation_name(runtime, Kind.BROADCAST, name)
    request = make_request(
        Kind.BROADCAST,
        full_name,
        source,
        source.shape,
        source=source,
        target=values,
        root=root_rank,
        transient=transient,
    )
    return Submission(request, [source, values], lambda _: values if output is None else copy_back(output, values))


def barrier_submission(runtime: Runtime, name: str | None) -> Submission:
    """The result is None."""
    full_name, transient = operation_name(runtime, Kind.BARRIER, name)
    request = _core.Request(kind=Kind.BARRIER, name=full_name, data_type=0, shape=(), transient=transient)
    return Submission(request, [], lambda _: None)


def gathering_submission(
    runtime: Runtime,
    kind: Kind,
    tensor: torch.Tensor,
    name: str | None,
    *,
    reduction: Reduction = SUM,
    splits: Sequence[int] = (),
) -> Submission:
    """Allgather, reduce-scatter, all-to-all: the engine allocates the result, (tensor, received splits)."""
    source = dense(tensor)
    full_name, transient = operation_name(runtime, kind, name)
    request = make_request(
        kind,
        full_name,
        source,
        source.shape,
        source=source,
        reduction=reduction,
        splits=splits,
        transient=transient,
    )

    def finish(handle: _core.Handle) -> tuple[torch.Tensor, list[int]]:
        memory, shape, received_splits = handle.take_result()
        return tensor_over(memory, source.dtype, shape), received_splits

    return Submission(request, [source], finish)


def reducescatter_submission(
    runtime: Runtime, tensor: torch.Tensor, name: str | None, reduction: Reduction
) -> Submission:
    """InvalidArgumentError for Adasum, which has no shares."""
    if reduction.operation == ReduceOperation.ADASUM:
        raise InvalidArgumentError(f"{describe(Kind.REDUCESCATTER, name)}: op=Adasum is for allreduce only")
    return gathering_submission(runtime, Kind.REDUCESCATTER, tensor, name, reduction=reduction)
