"""Loading models whose optimizer goes on as a DistributedOptimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from gyre._job.compression import Compression, Compressor
from gyre.keras._optimizer import DistributedMixin, DistributedOptimizer


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type[Any]] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: type[Compressor] = Compression.none,
    **options: Any,
) -> Any:
    """keras.models.load_model(), with the model's optimizer as a DistributedOptimizer that has the saved state.

    `custom_optimizers`: classes of optimizers that are not Keras's own; `custom_objects`: as in Keras. `options`: of
    DistributedOptimizer. Files do not depend on Gyre: whichever optimizer the model was saved with, they hold its plain
    class.
    """
    classes = {one.__name__: one for one in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**classes, **(custom_objects or {})})
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.Optimizer) and not isinstance(optimizer, DistributedMixin):
        DistributedOptimizer(optimizer, compression=compression, **options)
    return model
