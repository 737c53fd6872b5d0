"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import keras

from gyre._job.process_sets import ProcessSet, global_process_set, runtime_of
from gyre.errors import InvalidArgumentError
from gyre.keras._back_end import back_end


@keras.saving.register_keras_serializable("gyre")
class SyncBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """keras.layers.BatchNormalization, with mean and variance over the batches of all ranks of `process_set` in
    training.

    Every value has the same weight, so ranks may have batches of different sizes, and ranks without one more batch do
    not count. A file with such a layer is loaded where gyre.keras is imported; the layer then works on all ranks.
    `fused` is for compatibility with Horovod: False or None.
    """

    def __init__(
        self,
        axis: int = -1,
        *,
        fused: bool | None = None,
        process_set: ProcessSet = global_process_set,
        **options: Any,
    ) -> None:
        if fused:
            raise InvalidArgumentError("SyncBatchNormalization does not work with fused=True")
        super().__init__(axis=axis, **options)
        self._process_set = process_set

    def _moments(self, inputs: Any, mask: Any) -> Any:
        """Two exchanges: the mean first, so that the squares are of differences and lose no precision."""
        if runtime_of(self._process_set, "SyncBatchNormalization").size == 1:
            return super()._moments(inputs, mask)
        ops = keras.ops
        axis = self.axis % len(inputs.shape)
        others = [one for one in range(len(inputs.shape)) if one != axis]
        along = [-1 if one == axis else 1 for one in range(len(inputs.shape))]

        def total(tensor: Any) -> Any:
            return back_end().sum_over_ranks(self._process_set, tensor)

        weights = (
            ops.ones_like(inputs) if mask is None else ops.broadcast_to(ops.expand_dims(mask, -1), ops.shape(inputs))
        )
        weights = ops.cast(weights, inputs.dtype)
        sums = total(ops.stack([ops.sum(weights, others), ops.sum(inputs * weights, others)]))
        count = ops.maximum(sums[0], 1)
        mean = sums[1] / count
        distances = ops.square(inputs - ops.reshape(mean, along)) * weights
        return mean, total(ops.sum(distances, others)) / count
