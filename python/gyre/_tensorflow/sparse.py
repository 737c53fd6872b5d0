"""Sums of tf.IndexedSlices: the rows of all ranks are gathered."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gyre._operations import ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre._tensorflow.calls import gather


def reduce_sparse(runtime: Runtime, slices: Any, reduction: Reduction) -> Any:
    """tf.IndexedSlices with the values and indices of all ranks, in rank order, for op Average or Sum."""
    values, indices = gather(runtime, [slices.values, slices.indices])
    factor = reduction.prescale * reduction.postscale
    if reduction.operation == ReduceOperation.AVERAGE:
        factor /= runtime.size
    if factor != 1.0:
        values = values * tf.cast(factor, values.dtype)
    return tf.IndexedSlices(values, indices, slices.dense_shape)
