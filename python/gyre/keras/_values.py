"""Operations on values: numbers, lists and arrays in, NumPy arrays out. Outside of the training step."""

from __future__ import annotations

from typing import Any

import keras
import numpy

from gyre._job import arrays
from gyre._job.operation_argument import resolve_operation
from gyre._job.process_sets import ProcessSet, global_process_set, root_in, runtime_of
from gyre._operations import Kind, ReduceOperation, Reduction
from gyre._runtime import Runtime


def _array(value: Any) -> arrays.Array:
    return numpy.asarray(keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else value, order="C")


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOperation | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduction of the ranks' values, Average unless `op` (or the old `average`) says otherwise."""
    operation = resolve_operation(op, average)
    runtime, own = runtime_of(process_set, "allreduce"), _array(value)
    result = numpy.empty_like(own)
    reduction = Reduction(operation, prescale_factor, postscale_factor)
    arrays.run(runtime, [arrays.request(runtime, Kind.ALLREDUCE, own, name=name, target=result, reduction=reduction)])
    return result


def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The rows of all ranks' values, in rank order."""
    runtime, own = runtime_of(process_set, "allgather"), _array(value)
    return _taken(runtime, arrays.request(runtime, Kind.ALLGATHER, own, name=name), own)


def broadcast(value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The value of `root_rank`; that of every rank has its shape and type."""
    runtime, own = runtime_of(process_set, "broadcast"), numpy.array(_array(value))
    root = root_in(process_set, root_rank, "broadcast")
    arrays.run(runtime, [arrays.request(runtime, Kind.BROADCAST, own, name=name, target=own, root=root)])
    return own


def reducescatter(
    value: Any,
    name: str | None = None,
    op: ReduceOperation = ReduceOperation.AVERAGE,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """This rank's share of the rows of the reduction."""
    runtime, own = runtime_of(process_set, "reducescatter"), _array(value)
    return _taken(runtime, arrays.request(runtime, Kind.REDUCESCATTER, own, name=name, reduction=Reduction(op)), own)


def _taken(runtime: Runtime, request: Any, like: arrays.Array) -> Any:
    [handle] = arrays.run(runtime, [request])
    memory, shape, _ = handle.take_result()
    return arrays.array_over(memory, like.dtype, shape)
