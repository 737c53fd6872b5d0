"""Loading models whose optimizer goes on as a DistributedOptimizer."""

from __future__ import annotations

import importlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from gyre._job.compression import Compression, Compressor
from gyre.keras._optimizer import DistributedMixin, DistributedOptimizer, distribute_instead


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
    model = load_plain_model(filepath, {**classes, **(custom_objects or {})})
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.Optimizer) and not isinstance(optimizer, DistributedMixin):
        DistributedOptimizer(optimizer, compression=compression, **options)
    return model


# Losses that Keras 3 writes into an HDF5 file by their short name, by which it does not find them there.
_SHORT_NAMES = {
    "bce": "binary_crossentropy",
    "kld": "kl_divergence",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "mse": "mean_squared_error",
    "msle": "mean_squared_logarithmic_error",
}
_load_of_keras = keras.src.saving.saving_api.load_model


def load_plain_model(filepath: Any, custom_objects: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """keras.models.load_model(), which also reads what Keras 3 writes into HDF5 files but does not read: short names of
    losses, and the optimizer's state. A function among the custom objects that makes an optimizer is called, as Keras 2
    did."""
    if not str(filepath).endswith((".h5", ".hdf5")):
        return _load_of_keras(filepath, custom_objects=custom_objects, **options)
    losses = {short: getattr(keras.losses, name) for short, name in _SHORT_NAMES.items()}
    model = _load_of_keras(filepath, custom_objects={**losses, **_with_makers(custom_objects or {})}, **options)
    _restore_optimizer(model, filepath)
    return model


def _with_makers(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Keras 3 would take a function under an optimizer's name for the optimizer, rather than call it."""
    optimizers = {name.lower() for name in dir(keras.optimizers)}
    return {
        name: _Maker(one) if isinstance(one, types.FunctionType) and name.lower() in optimizers else one
        for name, one in objects.items()
    }


class _Maker:
    """In place of a class."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self.__name__ = make.__name__

    def from_config(self, config: Mapping[str, Any]) -> Any:
        """An optimizer."""
        return self._make(**config)


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
    if isinstance(optimizer, DistributedMixin):
        distribute_instead(restored, optimizer)
    model.optimizer = restored
