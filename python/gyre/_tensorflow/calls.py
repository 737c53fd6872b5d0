"""Operations on TensorFlow's tensors, in a tf.function or outside: without gradients, which differentiable adds.

Each takes a list of tensors, which one exchange carries, and returns a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import tensorflow as tf

from gyre._job import arrays
from gyre._job.arrays import Array
from gyre._operations import Kind, Reduction
from gyre._runtime import Runtime
from gyre._tensorflow.gradients import array_of, check_can_run_here
from gyre.core import _core


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def run(work: Callable[..., list[Any]], tensors: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """work(*tensors), eagerly: now, or whenever the function that is being traced gets there. In the order of their
    creation, one at a time, which is the same on all ranks if they trace the same function."""
    check_can_run_here()
    if tf.executing_eagerly():
        return work(*tensors)
    return list(tf.py_function(work, list(tensors), list(types)))


def reduce_all(runtime: Runtime, tensors: Sequence[Any], reduction: Reduction, name: str | None = None) -> list[Any]:
    """The allreduce of each tensor."""

    def request(source: Array, target: Array, member: str | None) -> _core.Request:
        return arrays.request(runtime, Kind.ALLREDUCE, source, name=member, target=target, reduction=reduction)

    return _in_memory(runtime, tensors, name, request)


def broadcast_all(runtime: Runtime, tensors: Sequence[Any], root: int, name: str | None = None) -> list[Any]:
    """The root's value of each tensor; `root` is numbered within the runtime."""

    def request(source: Array, target: Array, member: str | None) -> _core.Request:
        return arrays.request(runtime, Kind.BROADCAST, source, name=member, target=target, root=root)

    return _in_memory(runtime, tensors, name, request)


def _in_memory(
    runtime: Runtime,
    tensors: Sequence[Any],
    name: str | None,
    request: Callable[[Array, Array, str | None], _core.Request],
) -> list[Any]:
    """For results of the tensors' own shapes."""

    def work(*values: Any) -> list[Any]:
        sources = [array_of(value) for value in values]
        targets = [numpy.empty_like(source) for source in sources]
        pairs = enumerate(zip(sources, targets, strict=True))
        requests = [request(*pair, _member(name, index, len(sources))) for index, pair in pairs]
        arrays.run(runtime, requests)
        return [tf.constant(target) for target in targets]

    results: list[Any] = run(work, tensors, [tensor.dtype for tensor in tensors])
    for result, tensor in zip(results, tensors, strict=True):
        _set_shape(result, tensor.shape)
    return results


def gather(runtime: Runtime, tensors: Sequence[Any], name: str | None = None) -> list[Any]:
    """The rows of all ranks, in rank order, of each tensor; a scalar is one row."""
    rows = [tf.reshape(tensor, [1]) if tensor.shape.rank == 0 else tensor for tensor in tensors]
    return _allocated(runtime, Kind.ALLGATHER, rows, name)


def scatter(runtime: Runtime, tensors: Sequence[Any], reduction: Reduction, name: str | None = None) -> list[Any]:
    """This rank's share of the rows of each tensor's reduction."""
    return _allocated(runtime, Kind.REDUCESCATTER, tensors, name, reduction=reduction)


def _allocated(runtime: Runtime, kind: Kind, tensors: Sequence[Any], name: str | None, **options: Any) -> list[Any]:
    """For results of which the first dimension is not known before."""

    def work(*values: Any) -> list[Any]:
        sources = [array_of(value) for value in values]
        requests = [
            arrays.request(runtime, kind, source, name=_member(name, index, len(sources)), **options)
            for index, source in enumerate(sources)
        ]
        handles = arrays.run(runtime, requests)
        return [_taken(handle.take_result(), source)[0] for handle, source in zip(handles, sources, strict=True)]

    results: list[Any] = run(work, tensors, [tensor.dtype for tensor in tensors])
    for result, tensor in zip(results, tensors, strict=True):
        _set_shape(result, _with_rows(tensor))
    return results


def exchange_rows(runtime: Runtime, tensor: Any, splits: Any, name: str | None = None) -> tuple[Any, Any]:
    """The alltoall: (rows, how many came from each rank). `splits`: how many of its rows go to each rank; None for
    equal parts."""

    def work(value: Any, *given: Any) -> list[Any]:
        source = array_of(value)
        numbers = given[0].numpy().tolist() if given else ()
        [handle] = arrays.run(runtime, [arrays.request(runtime, Kind.ALLTOALL, source, name=name, splits=numbers)])
        rows, received = _taken(handle.take_result(), source)
        return [rows, tf.constant(received, tf.int32)]

    inputs = [tensor] if splits is None else [tensor, tf.cast(splits, tf.int64)]
    rows, received = run(work, inputs, [tensor.dtype, tf.int32])
    _set_shape(rows, _with_rows(tensor))
    _set_shape(received, [runtime.size])
    return rows, received


def number(value: Callable[[], int]) -> Any:
    """value() as an int32, asked for whenever the function that is being traced gets there."""
    [result] = run(lambda: [tf.constant(value(), tf.int32)], [], [tf.int32])
    _set_shape(result, [])
    return result


def _member(name: str | None, index: int, count: int) -> str | None:
    return name if name is None or count == 1 else f"{name}.{index}"


def _taken(result: tuple[Any, list[int], list[int]], like: Array) -> tuple[Any, list[int]]:
    memory, shape, received = result
    return tf.constant(arrays.array_over(memory, like.dtype, shape)), received


def _with_rows(tensor: Any) -> Any:
    return tensor.shape if tensor.shape.rank is None else [None, *tensor.shape.as_list()[1:]]


def _set_shape(tensor: Any, shape: Any) -> None:
    if not tf.executing_eagerly():
        tensor.set_shape(shape)
