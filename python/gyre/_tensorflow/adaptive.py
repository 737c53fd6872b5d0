"""Adasum of TensorFlow's tensors: every rank gathers all contributions and combines them, as gyre.torch does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import tensorflow as tf

from gyre._job import arrays
from gyre._job.arrays import data_type_number, memory_of
from gyre._operations import Reduction
from gyre._runtime import Runtime
from gyre._tensorflow import calls
from gyre._tensorflow.gradients import array_of
from gyre.core import _core
from gyre.errors import InvalidArgumentError


def adasum(runtime: Runtime, tensors: Sequence[Any], reduction: Reduction, name: str | None) -> list[Any]:
    """The adaptive sum of each tensor. Floating-point tensors only."""
    for tensor in tensors:
        if not tensor.dtype.is_floating:
            raise InvalidArgumentError("allreduce with op=Adasum needs floating-point tensors")
    gathered = calls.gather(runtime, [tensor[None] for tensor in tensors], name)

    def combine(*values: Any) -> list[Any]:
        return [_combined(array_of(value), reduction) for value in values]

    results = calls.run(combine, gathered, [tensor.dtype for tensor in tensors])
    return [tf.ensure_shape(result, tensor.shape) for result, tensor in zip(results, tensors, strict=True)]


def _combined(rows: arrays.Array, reduction: Reduction) -> Any:
    result = numpy.empty(rows.shape[1:], rows.dtype)
    number = data_type_number(rows.dtype.name, "allreduce")
    _core.adaptive_sum(
        result=memory_of(result),
        result_type=number,
        contributions=[memory_of(row) for row in rows],
        data_type=number,
        prescale=reduction.prescale,
        postscale=reduction.postscale,
    )
    return tf.constant(result)
