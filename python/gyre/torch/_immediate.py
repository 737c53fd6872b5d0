"""Operations on memory of one shape: allreduce, broadcast, barrier. If the ranks of a host arrive at the same time,
the calling thread of a synchronous operation does the work itself, in one call into the engine that makes no
request, handle or closure: the work on a small tensor takes less time than making those. For the same reason these
functions call few others."""

from __future__ import annotations

from typing import Any

import torch

from gyre._operations import Kind, ReduceOperation
from gyre._runtime import Runtime
from gyre._tensors.memory import DATA_TYPE_NUMBERS, dense
from gyre.core import _core
from gyre.torch._submissions import OneTimeName, copy_back
from gyre.torch.handle import Handle, TensorHandle

# Numbers, because members of an IntEnum take longer to convert.
_ALLREDUCE, _BROADCAST, _BARRIER = int(Kind.ALLREDUCE), int(Kind.BROADCAST), int(Kind.BARRIER)
_SUM = int(ReduceOperation.SUM)
_STRIDED = torch.strided


def is_plain(tensor: object) -> bool:
    """Whether the engine can read and write the tensor's memory as it is, and autograd is not involved."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.dtype in DATA_TYPE_NUMBERS
        and tensor.is_cpu
        and tensor.layout is _STRIDED
        and not tensor.requires_grad
        and tensor.is_contiguous()
        and not tensor.is_neg()
    )


def run_allreduce(
    runtime: Runtime,
    source: torch.Tensor,
    target: torch.Tensor,
    name: str | None,
    operation: int,
    prescale: float,
    postscale: float,
) -> None:
    """From one plain tensor's memory into another's, or the same one's. Any operation except Adasum."""
    if name is None:
        full_name, transient = f"allreduce.noname.{runtime.next_number('allreduce')}", True
    else:
        full_name, transient = f"allreduce.{name}", type(name) is OneTimeName
    address = source.data_ptr()
    pending = runtime.run_in_memory(
        _ALLREDUCE,
        full_name,
        transient,
        DATA_TYPE_NUMBERS[source.dtype],
        source.shape,
        address,
        address if target is source else target.data_ptr(),
        source.nbytes,
        int(operation),
        prescale,
        postscale,
        0,
    )
    if pending is not None:
        _wait(runtime, pending, (source, target))


def submit_allreduce(
    runtime: Runtime, source: torch.Tensor, name: str | None, operation: int, prescale: float, postscale: float
) -> Handle:
    """From a plain tensor into a new one, the handle's result. Any operation except Adasum."""
    if name is None:
        full_name, transient = f"allreduce.noname.{runtime.next_number('allreduce')}", True
    else:
        full_name, transient = f"allreduce.{name}", type(name) is OneTimeName
    target = torch.empty_like(source)
    pending = runtime.core.submit_in_memory(
        _ALLREDUCE,
        full_name,
        transient,
        DATA_TYPE_NUMBERS[source.dtype],
        source.shape,
        source.data_ptr(),
        target.data_ptr(),
        source.nbytes,
        int(operation),
        prescale,
        postscale,
        0,
    )
    return TensorHandle(runtime, pending, source, target)


def run_broadcast(runtime: Runtime, tensor: torch.Tensor, in_place: bool, name: str | None, root: int) -> torch.Tensor:
    """The root's values, in `tensor` itself if `in_place`. `root` counts within the runtime's ranks."""
    source = dense(tensor)
    target = source if in_place else torch.empty_like(source)
    if name is None:
        full_name, transient = f"broadcast.noname.{runtime.next_number('broadcast')}", True
    else:
        full_name, transient = f"broadcast.{name}", type(name) is OneTimeName
    pending = runtime.run_in_memory(
        _BROADCAST,
        full_name,
        transient,
        DATA_TYPE_NUMBERS[source.dtype],
        source.shape,
        source.data_ptr(),
        target.data_ptr(),
        source.nbytes,
        _SUM,
        1.0,
        1.0,
        root,
    )
    if pending is not None:
        _wait(runtime, pending, (source, target))
    return copy_back(tensor, target) if in_place else target


def run_barrier(runtime: Runtime, name: str | None) -> None:
    """Returns when all ranks of the runtime are there."""
    if name is None:
        full_name, transient = f"barrier.noname.{runtime.next_number('barrier')}", True
    else:
        full_name, transient = f"barrier.{name}", type(name) is OneTimeName
    pending = runtime.run_in_memory(_BARRIER, full_name, transient, 0, (), 0, 0, 0, _SUM, 1.0, 1.0, 0)
    if pending is not None:
        _wait(runtime, pending, None)


def _wait(runtime: Runtime, pending: _core.Handle, memory: Any) -> None:
    """The memory stays alive until the operation is done, even if Ctrl-C ends the wait for it."""
    Handle(runtime, [pending], memory, lambda _: None).wait()
