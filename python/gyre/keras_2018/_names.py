"""Names of 2018 in the modules of Keras 3 and TensorFlow 2: what each module gets when it has been imported, and the
modules that are gone."""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

from gyre._keras_2.finder import Names
from gyre._keras_2.report import report
from gyre._keras_2.tensorflow_2 import patch_legacy_backend, patch_legacy_optimizers
from gyre.errors import UnsupportedError
from gyre.keras_2018 import _callbacks, _horovod, _models, _optimizers

_LAYERS = (
    "advanced_activations",
    "convolutional",
    "core",
    "embeddings",
    "local",
    "merge",
    "noise",
    "normalization",
    "pooling",
    "recurrent",
    "wrappers",
)

_ALIASES = {
    **{f"layers.{name}": "layers" for name in _LAYERS},
    **{f"utils.{name}": "utils" for name in ("data_utils", "generic_utils", "np_utils", "vis_utils")},
    **dict.fromkeys(("engine", "engine.base_layer", "engine.topology", "engine.training"), ""),
    "backend.tensorflow_backend": "backend",
    "objectives": "losses",
    "preprocessing.text": "keras.src.legacy.preprocessing.text",
}


def add_fallback(module: Any, find: Callable[[str], Any]) -> None:
    """What the module lacks is looked for with `find`, which raises AttributeError."""
    before = module.__dict__.get("__getattr__")

    def look_up(name: str) -> Any:
        if before is not None:
            try:
                return before(name)
            except AttributeError:
                pass
        return find(name)

    module.__getattr__ = look_up


def _missing(module: Any, name: str) -> AttributeError:
    return AttributeError(f"module '{module.__name__}' has no attribute '{name}'")


def _add_gone_modules(module: Any, inside: str) -> None:
    """`keras.utils.np_utils` as an attribute: importing it is done by Finder."""

    def find(name: str) -> Any:
        if (f"{inside}.{name}" if inside else name) not in _ALIASES:
            raise _missing(module, name)
        return importlib.import_module(f"{module.__name__}.{name}")

    add_fallback(module, find)


def _patch_keras(module: Any) -> None:
    _add_gone_modules(module, "")
    if module.__name__ == "keras":  # The others have the same classes.
        _optimizers.patch_classes(module)
        _models.patch_classes(module)
        _callbacks.patch_classes(module)


def _patch_optimizers(module: Any) -> None:
    def find(name: str) -> Any:
        for kind in _optimizers.ARGUMENTS:
            if name == kind.lower():
                report(f"keras.optimizers.{name}", f"keras.optimizers.{kind}")
                return getattr(module, kind)
        raise _missing(module, name)

    add_fallback(module, find)


def _patch_models(module: Any) -> None:
    module.load_model = functools.wraps(module.load_model)(_models.load_model)


_ORDERINGS = {"tf": "channels_last", "th": "channels_first"}


def _patch_backend(module: Any) -> None:
    def image_dim_ordering() -> str:
        report("K.image_dim_ordering()", "K.image_data_format()")
        return "th" if module.image_data_format() == "channels_first" else "tf"

    def set_image_dim_ordering(ordering: str) -> None:
        report("K.set_image_dim_ordering()", "K.set_image_data_format()")
        module.set_image_data_format(_ORDERINGS[ordering])

    own = {
        "set_session": set_session,
        "get_session": get_session,
        "image_dim_ordering": image_dim_ordering,
        "set_image_dim_ordering": set_image_dim_ordering,
    }

    def find(name: str) -> Any:
        if name in own:
            return own[name]
        if name.startswith("__"):
            raise _missing(module, name)
        legacy = importlib.import_module("keras.src.legacy.backend")
        found = getattr(legacy, name, None)
        if not isinstance(found, types.FunctionType):
            raise _missing(module, name)
        report(f"K.{name}()", "Keras 3 keeps it for old code, as tf.keras.backend has it")
        return found

    _add_gone_modules(module, "backend")
    add_fallback(module, find)


def _add_legacy(names_of: str) -> Callable[[Any], None]:
    """The names that Keras 3 keeps in keras.src.legacy.preprocessing."""

    def patch(module: Any) -> None:
        def find(name: str) -> Any:
            legacy = importlib.import_module(f"keras.src.legacy.preprocessing.{names_of}")
            if name.startswith("_") or not hasattr(legacy, name):
                raise _missing(module, name)
            report(f"keras.preprocessing.{names_of}.{name}", "Keras 3 keeps it for old code, as tf.keras has it")
            return getattr(legacy, name)

        add_fallback(module, find)

    return patch


_PATCHES: dict[str, Callable[[Any], None]] = {
    "": _patch_keras,
    "backend": _patch_backend,
    "layers": lambda module: _add_gone_modules(module, "layers"),
    "models": _patch_models,
    "optimizers": _patch_optimizers,
    "optimizers.legacy": patch_legacy_optimizers,
    "preprocessing": lambda module: _add_gone_modules(module, "preprocessing"),
    "preprocessing.image": _add_legacy("image"),
    "preprocessing.sequence": _add_legacy("sequence"),
    "src.legacy.backend": patch_legacy_backend,
    "utils": lambda module: _add_gone_modules(module, "utils"),
}


class Session:
    """tf.Session, as far as scripts make one in order to pass a ConfigProto to Keras: TensorFlow 2 has no sessions."""

    def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
        del target, graph
        self.config = config

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing was opened."""

    def run(self, *arguments: Any, **options: Any) -> Any:
        """UnsupportedError."""
        del arguments, options
        raise UnsupportedError(
            "Session.run(): TensorFlow 2 has no sessions, and --keras-2018 gives tf.Session to K.set_session() only; "
            "compute with Keras, or with tf.function"
        )


_session = Session()


def get_session() -> Session:
    """The one that was set last."""
    return _session


def set_session(session: Session) -> None:
    """Takes over the numbers of threads from the session's ConfigProto. GPUs are not used."""
    global _session  # noqa: PLW0603  As Keras's own.
    _session = session
    report("K.set_session()", "there are no sessions; numbers of threads are taken over, options of GPUs are not")
    config = getattr(session, "config", None)
    if config is None:
        return
    threading = importlib.import_module("tensorflow").config.threading
    for kind in ("intra", "inter"):
        number = getattr(config, f"{kind}_op_parallelism_threads")
        if number and number != getattr(threading, f"get_{kind}_op_parallelism_threads")():
            getattr(threading, f"set_{kind}_op_parallelism_threads")(number)


def _patch_tensorflow(module: Any) -> None:
    """Names of TensorFlow 1 that a program for Keras needs."""

    def find(name: str) -> Any:
        if name in ("Session", "InteractiveSession"):
            report(f"tf.{name}", "holds the ConfigProto for K.set_session()")
            return Session
        if name == "set_random_seed":
            report("tf.set_random_seed()", "tf.random.set_seed()")
            return module.random.set_seed
        if name in ("ConfigProto", "GPUOptions", "logging", "gfile", "app", "flags"):
            report(f"tf.{name}", f"tf.compat.v1.{name}")
            return getattr(module.compat.v1, name)
        raise _missing(module, name)

    add_fallback(module, find)


NAMES = Names(
    "--keras-2018",
    patches=_PATCHES,
    others={
        "tensorflow": _patch_tensorflow,
        # It is imported under two names.
        "tensorflow.summary": _callbacks.add_scalar_summaries,
        "tensorflow._api.v2.summary": _callbacks.add_scalar_summaries,
        "gyre.keras.callbacks": _horovod.patch_callbacks,
    },
    aliases=_ALIASES,
)
