"""Keras on TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from gyre._job.gradient_exchange import Gradient, Layout
from gyre._job.process_sets import ProcessSet, runtime_of
from gyre._operations import ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre._tensorflow import differentiable, gradients
from gyre._tensorflow.sparse import reduce_sparse


class TensorFlowBackEnd:
    """See BackEnd."""

    def check_program(self) -> None:
        gradients.check_strategy(tf.distribute.get_strategy())

    def describe(self, name: str, tensor: Any, group: int) -> Gradient:
        return gradients.describe(name, tensor, group)

    def reduce(self, layout: Layout, tensors: Sequence[Any]) -> list[Any]:
        reduced: list[Any] = gradients.reduce(layout, tensors)
        return reduced

    def is_sparse(self, tensor: Any) -> bool:
        return isinstance(tensor, tf.IndexedSlices)

    def to_dense(self, tensor: Any) -> Any:
        return tf.convert_to_tensor(tensor)

    def reduce_sparse(self, runtime: Runtime, tensor: Any, reduction: Reduction) -> Any:
        return reduce_sparse(runtime, tensor, reduction)

    def multiply(self, tensor: Any, factor: float) -> Any:
        if isinstance(tensor, tf.IndexedSlices):
            return tf.IndexedSlices(self.multiply(tensor.values, factor), tensor.indices, tensor.dense_shape)
        return tensor * tf.cast(factor, tensor.dtype)

    def zeros_like(self, variable: Any) -> Any:
        return tf.zeros(variable.shape, variable.dtype)

    def sum_over_ranks(self, process_set: ProcessSet, tensor: Any) -> Any:
        [result] = differentiable.allreduce(runtime_of(process_set), [tensor], Reduction(ReduceOperation.SUM), None)
        return result

    def conditionally(self, condition: Any, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        def effect_of(branch: Callable[[], None]) -> Callable[[], Any]:
            def run() -> Any:
                branch()
                return tf.constant(0)

            return run

        tf.cond(condition, effect_of(then), effect_of(otherwise))

    def outside_of_graphs(self) -> AbstractContextManager[None]:
        scope: AbstractContextManager[None] = tf.init_scope()
        return scope
