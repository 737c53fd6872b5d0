"""Finds Keras's and TensorFlow's modules as Python does, and gives them the names of 2018 when they have run."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from gyre.keras_2018._names import ALIASES, PATCHES, PATCHES_OF_TENSORFLOW
from gyre.keras_2018._report import report

# The names under which Keras is imported. tf.keras is the second, or, imported as a module, the third.
_ROOTS = ("keras._tf_keras.keras", "tensorflow.keras", "keras")


def _place_in_keras(name: str) -> tuple[str, str] | None:
    """("tensorflow.keras", "utils.np_utils") of "tensorflow.keras.utils.np_utils"."""
    for root in _ROOTS:
        if name == root:
            return root, ""
        if name.startswith(f"{root}."):
            return root, name[len(root) + 1 :]
    return None


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """In sys.meta_path before Python's own."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in PATCHES_OF_TENSORFLOW:
            return _found(fullname, path, target, then=PATCHES_OF_TENSORFLOW[fullname])
        place = _place_in_keras(fullname)
        if place is None:
            return None
        root, inside = place
        if inside in PATCHES:
            return _found(fullname, path, target, then=PATCHES[inside])
        if inside in ALIASES:
            spec = _found(fullname, path, target)
            return spec or importlib.machinery.ModuleSpec(fullname, self, loader_state=(root, inside))
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """A module that Keras no longer has: the names of the one that has them now."""
        root, inside = spec.loader_state
        other = ALIASES[inside]
        target = other if other.startswith("keras.") else ".".join(filter(None, (root, other)))
        report(f"keras.{inside}", f"the names of {target}")
        module = types.ModuleType(spec.name)
        found = importlib.import_module(target)
        module.__dict__.update({name: value for name, value in vars(found).items() if not name.startswith("__")})
        module.__dict__["__getattr__"] = lambda name: getattr(found, name)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is left to do."""


def _found(
    name: str,
    path: Sequence[str] | None,
    target: types.ModuleType | None,
    then: Callable[[Any], None] | None = None,
) -> importlib.machinery.ModuleSpec | None:
    """What the other finders say; `then` is called with the module when it has run."""
    for finder in sys.meta_path:
        if isinstance(finder, Finder):
            continue
        spec = finder.find_spec(name, path, target)
        if spec is None:
            continue
        if then is not None and spec.loader is not None:
            _call_after(spec.loader, then)
        return spec
    return None


def _call_after(loader: Any, then: Callable[[Any], None]) -> None:
    run = loader.exec_module

    def exec_module(module: types.ModuleType) -> None:
        run(module)
        then(module)

    loader.exec_module = exec_module
