"""Loading models whose optimizer goes on as a DistributedOptimizer."""

from __future__ import annotations

import importlib
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
    class. The optimizer's state in an HDF5 file, with which Keras 3 cannot go on, is restored too.
    """
    classes = {one.__name__: one for one in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**classes, **(custom_objects or {})})
    if str(filepath).endswith((".h5", ".hdf5")):
        _restore_optimizer(model, filepath)
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.Optimizer) and not isinstance(optimizer, DistributedMixin):
        DistributedOptimizer(optimizer, compression=compression, **options)
    return model


def _restore_optimizer(model: Any, filepath: Any) -> None:
    """Keras 3 builds the optimizer of an HDF5 file for the variables that the model owns directly, which are none where
    its layers own them: fit() then fails. This gives the model an optimizer for all of them, with the saved values."""
    optimizer = model.optimizer
    if not isinstance(optimizer, keras.optimizers.Optimizer) or optimizer._trainable_variables:
        return
    restored = type(optimizer).from_config(optimizer.get_config())
    restored.build(model.trainable_variables)
    h5py = importlib.import_module("h5py")  # Keras needs it for such a file too.
    with h5py.File(filepath) as file:
        group = file.get("optimizer_weights")
        if group is not None:
            names = [name.decode() if isinstance(name, bytes) else name for name in group.attrs["weight_names"]]
            restored.set_weights([group[name][()] for name in names])
    model.optimizer = restored
