"""Operations that carry gradients, scaled as Horovod scales them, so that a script keeps its learning rate.

| operation | backward |
|---|---|
| allreduce | the same allreduce of the gradients, with its operation and factors |
| broadcast | the root gets the average of all ranks' gradients, the others zeros |
| allgather | each rank gets the average of all ranks' gradients of its own rows |
| reducescatter | all ranks' gradients gathered, times both factors, and with Sum times the number of ranks |
| alltoall | the gradients return to where the rows came from |

Backward is collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gyre._operations import ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre._tensorflow import calls
from gyre.errors import UnsupportedError

_AVERAGE = Reduction(ReduceOperation.AVERAGE)


def _gradient_name(name: str | None) -> str | None:
    return None if name is None else f"{name}.gradient"


def _check_linear(reduction: Reduction, what: str) -> None:
    if reduction.operation not in (ReduceOperation.SUM, ReduceOperation.AVERAGE):
        word = reduction.operation.name.capitalize()
        raise UnsupportedError(
            f"{what} with op={word} has no gradient; pass tf.stop_gradient(tensor), or use Sum or Average"
        )


def allreduce(runtime: Runtime, tensors: Sequence[Any], reduction: Reduction, name: str | None) -> list[Any]:
    """Backward is for Sum and Average only."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def call(*values: Any) -> Any:
        def backward(*upstream: Any) -> Any:
            _check_linear(reduction, "allreduce")
            return allreduce(runtime, upstream, reduction, _gradient_name(name))

        return calls.reduce_all(runtime, values, reduction, name), backward

    return list(call(*tensors))


def broadcast(runtime: Runtime, tensor: Any, root: int, name: str | None) -> Any:
    """`root` is numbered within the runtime."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def call(value: Any) -> Any:
        def backward(upstream: Any) -> Any:
            [average] = allreduce(runtime, [upstream], _AVERAGE, _gradient_name(name))
            return average if runtime.rank == root else average * 0

        return calls.broadcast_all(runtime, [value], root, name)[0], backward

    return call(tensor)


def allgather(runtime: Runtime, tensors: Sequence[Any], name: str | None) -> list[Any]:
    """The rows of all ranks."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def call(*values: Any) -> Any:
        def backward(*upstream: Any) -> Any:
            counts = [tf.shape(value)[0] if value.shape.rank else tf.constant(1) for value in values]
            [all_counts] = calls.gather(runtime, [tf.stack(counts)[None]], None if name is None else f"{name}.rows")
            first_rows = tf.reduce_sum(all_counts[: runtime.rank], 0)
            averages = allreduce(runtime, upstream, _AVERAGE, _gradient_name(name))
            return [
                tf.reshape(average[first_rows[index] : first_rows[index] + counts[index]], tf.shape(value))
                for index, (average, value) in enumerate(zip(averages, values, strict=True))
            ]

        return calls.gather(runtime, values, name), backward

    return list(call(*tensors))


def reducescatter(runtime: Runtime, tensors: Sequence[Any], reduction: Reduction, name: str | None) -> list[Any]:
    """Backward is for Sum and Average only."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def call(*values: Any) -> Any:
        def backward(*upstream: Any) -> Any:
            _check_linear(reduction, "reducescatter")
            summed = reduction.operation == ReduceOperation.SUM
            factor = (runtime.size if summed else 1) * reduction.prescale * reduction.postscale
            scaled = [one if factor == 1 else one * tf.cast(factor, one.dtype) for one in upstream]
            return allgather(runtime, scaled, _gradient_name(name))

        return calls.scatter(runtime, values, reduction, name), backward

    return list(call(*tensors))


def alltoall(runtime: Runtime, tensor: Any, splits: Any, name: str | None) -> tuple[Any, Any]:
    """(tensor, received splits)"""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def call(value: Any) -> Any:
        rows, received = calls.exchange_rows(runtime, value, splits, name)

        def backward(upstream: Any, _: Any) -> Any:
            return alltoall(runtime, upstream, received, _gradient_name(name))[0]

        return (rows, received), backward

    rows, received = call(tensor)
    return rows, received
