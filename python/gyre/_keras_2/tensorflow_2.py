"""The names of Keras 2 as TensorFlow 2.0 to 2.15 had it, which scripts for Horovod 0.28 use."""

from __future__ import annotations

import importlib
from typing import Any

from gyre._keras_2 import finder, models, optimizers
from gyre._keras_2.report import report

_OPTIMIZERS = ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam", "Ftrl")


def _patch_keras(module: Any) -> None:
    if module.__name__ != "keras":  # The others have the same classes.
        return
    for name in _OPTIMIZERS:
        optimizers.patch_arguments(getattr(module.optimizers, name))
    optimizers.patch_base(module)
    models.patch_classes(module)


def patch_legacy_optimizers(module: Any) -> None:
    """Of keras.optimizers.legacy, whose names Keras 3 has for an error message only."""
    for name in ("Optimizer", *_OPTIMIZERS):
        vars(module).pop(name, None)

    def find(name: str) -> Any:
        if name != "Optimizer" and name not in _OPTIMIZERS:
            raise AttributeError(f"module '{module.__name__}' has no attribute '{name}'")
        report(f"keras.optimizers.legacy.{name}", f"keras.optimizers.{name}")
        return getattr(importlib.import_module("keras.optimizers"), name)

    module.__getattr__ = find


def patch_legacy_backend(module: Any) -> None:
    """Of keras.src.legacy.backend, whose set_value() fails with Keras's own variables, as `optimizer.lr` is one."""
    inherited = module.set_value

    def set_value(x: Any, value: Any) -> None:
        if not isinstance(x, importlib.import_module("keras").Variable):
            inherited(x, value)
            return
        report("K.set_value() of a Keras variable", "its assign()")
        x.assign(value)

    def batch_set_value(tuples: Any) -> None:
        for x, value in tuples:
            set_value(x, value)

    module.set_value, module.batch_set_value = set_value, batch_set_value


NAMES = finder.Names(
    "--horovod-compat",
    patches={
        "": _patch_keras,
        "optimizers.legacy": patch_legacy_optimizers,
        "src.legacy.backend": patch_legacy_backend,
    },
)
