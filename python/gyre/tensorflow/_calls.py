"""Operations on TensorFlow's tensors, in a tf.function or outside: without gradients, which differentiable adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import tensorflow as tf

from gyre._job import arrays
from gyre._job.arrays import Array
from gyre._operations import SUM, Kind, Reduction
from gyre._runtime import Runtime
from gyre.tensorflow._gradients import array_of, check_can_run_here

Shape = list[int | None]


def run(work: Callable[..., list[Any]], tensors: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """work(*tensors), eagerly: now, or whenever the function that is being traced gets there. In the order of their
    creation, one at a time, which is the same on all ranks if they trace the same function."""
    check_can_run_here()
    if tf.executing_eagerly():
        return work(*tensors)
    return list(tf.py_function(work, list(tensors), list(types)))


def gather(runtime: Runtime, tensors: Sequence[Any], name: str | None = None) -> list[Any]:
    """The rows of all ranks, in rank order, of each tensor."""

    def work(*values: Any) -> list[Any]:
        sources = [array_of(value) for value in values]
        requests = [
            arrays.request(runtime, Kind.ALLGATHER, source, name=_member(name, index, len(sources)))
            for index, source in enumerate(sources)
        ]
        handles = arrays.run(runtime, requests)
        return [_taken(handle.take_result(), source) for handle, source in zip(handles, sources, strict=True)]

    results = run(work, tensors, [tensor.dtype for tensor in tensors])
    for result, tensor in zip(results, tensors, strict=True):
        _set_shape(result, [None, *tensor.shape.as_list()[1:]] if tensor.shape.rank else tensor.shape)
    return results


def _member(name: str | None, index: int, count: int) -> str | None:
    return name if name is None or count == 1 else f"{name}.{index}"


def _taken(result: tuple[Any, list[int], list[int]], like: Array) -> Any:
    memory, shape, _ = result
    return tf.constant(arrays.array_over(memory, like.dtype, shape))


def _set_shape(tensor: Any, shape: Any) -> None:
    if not tf.executing_eagerly():
        tensor.set_shape(shape)


def reduce_all(
    runtime: Runtime, tensors: Sequence[Any], reduction: Reduction = SUM, name: str | None = None
) -> list[Any]:
    """The allreduce of each tensor."""

    def work(*values: Any) -> list[Any]:
        sources = [array_of(value) for value in values]
        targets = [numpy.empty_like(source) for source in sources]
        requests = [
            arrays.request(
                runtime,
                Kind.ALLREDUCE,
                source,
                name=_member(name, index, len(sources)),
                target=target,
                reduction=reduction,
            )
            for index, (source, target) in enumerate(zip(sources, targets, strict=True))
        ]
        arrays.run(runtime, requests)
        return [tf.constant(target) for target in targets]

    results = run(work, tensors, [tensor.dtype for tensor in tensors])
    for result, tensor in zip(results, tensors, strict=True):
        _set_shape(result, tensor.shape)
    return results
