"""Models with the methods and arguments of Keras 2.0 to 2.2."""

from __future__ import annotations

import functools
import importlib
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from gyre._keras_2 import models
from gyre._keras_2.report import report

# What metrics were called in the logs.
_METRICS = {
    "accuracy": "acc",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "mse": "mean_squared_error",
    "msle": "mean_squared_logarithmic_error",
}
_COMPILE = ("optimizer", "loss", "metrics", "loss_weights", "sample_weight_mode", "weighted_metrics", "target_tensors")


def patch_classes(keras: Any) -> None:
    """Of Keras, for all of its names."""
    models.patch_classes(keras)
    model = keras.Model
    model.compile = _compile(model.compile)
    model.fit = _fit(model.fit)
    model.predict_classes = _predict_classes
    model.predict_proba = _predict_proba
    model.save_weights = _save_weights(model.save_weights)


def _named_as_2018(metrics: Any) -> Any:
    if isinstance(metrics, dict):
        return {output: _named_as_2018(one) for output, one in metrics.items()}
    if isinstance(metrics, list | tuple):
        return [_named_as_2018(one) for one in metrics]
    if isinstance(metrics, str) and metrics in _METRICS:
        new = _METRICS[metrics]
        report(f"metrics=['{metrics}']", f"called {new} and val_{new} in the logs, as in Keras 2.2")
        return new
    return metrics


def _compile(inherited: Any) -> Any:
    @functools.wraps(inherited)
    def compile_model(self: Any, *arguments: Any, **options: Any) -> Any:
        given = {**dict(zip(_COMPILE, arguments, strict=False)), **options}
        for name in ("metrics", "weighted_metrics"):
            if name in given:
                given[name] = _named_as_2018(given[name])
        return inherited(self, **given)

    return compile_model


def _fit(inherited: Any) -> Any:
    @functools.wraps(inherited)
    def fit(self: Any, *arguments: Any, **options: Any) -> Any:
        if "nb_epoch" in options:
            report("nb_epoch=", "epochs=")
            options["epochs"] = options.pop("nb_epoch")
        return inherited(self, *arguments, **options)

    return fit


def _predict_classes(self: Any, x: Any, batch_size: int | None = None, verbose: int = 0) -> Any:
    report("predict_classes()", "predict(), and the largest or those above 0.5")
    found = self.predict(x, batch_size=batch_size, verbose=verbose)
    return found.argmax(axis=-1) if found.shape[-1] > 1 else (found > 0.5).astype("int32")


def _predict_proba(self: Any, x: Any, batch_size: int | None = None, verbose: int = 0) -> Any:
    report("predict_proba()", "predict()")
    return self.predict(x, batch_size=batch_size, verbose=verbose)


def _save_weights(inherited: Any) -> Any:
    @functools.wraps(inherited)
    def save_weights(self: Any, filepath: Any, *arguments: Any, **options: Any) -> Any:
        if str(filepath).endswith(".weights.h5"):
            return inherited(self, filepath, *arguments, **options)
        report("save_weights()", "an HDF5 file under any name, as load_weights() and Keras 2 read it")
        with importlib.import_module("h5py").File(filepath, "w") as file:
            importlib.import_module("keras.src.legacy.saving.legacy_h5_format").save_weights_to_hdf5_group(file, self)
        return None

    return save_weights


def load_model(filepath: Any, custom_objects: Any = None, **options: Any) -> Any:
    """keras.models.load_model(), which goes on with HDF5 files as Keras 2 did: see load_plain_model(); Lambda layers
    find the script's own functions."""
    from gyre.keras._saving import load_plain_model  # noqa: PLC0415  Imports Keras.

    own = _functions_of_lambdas(filepath) if str(filepath).endswith((".h5", ".hdf5")) else {}
    return load_plain_model(filepath, {**own, **(custom_objects or {})}, **options)


def _functions_of_lambdas(filepath: Any) -> dict[str, Any]:
    """The script's functions that Lambda layers of an HDF5 file name."""
    with importlib.import_module("h5py").File(filepath) as file:
        config = json.loads(file.attrs.get("model_config", "null"))
    script = sys.modules["__main__"]
    return {name: getattr(script, name) for name in _names_in_lambdas(config) if hasattr(script, name)}


def _names_in_lambdas(config: Any) -> Iterator[str]:
    inside: Iterable[Any] = ()
    if isinstance(config, dict):
        function = config.get("config", {}).get("function") if config.get("class_name") == "Lambda" else None
        if isinstance(function, dict) and isinstance(function.get("config"), str):
            yield function["config"]
        inside = config.values()
    elif isinstance(config, list):
        inside = config
    for one in inside:
        yield from _names_in_lambdas(one)
