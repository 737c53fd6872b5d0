"""Finds Keras's and TensorFlow's modules as Python does, and gives them names of former versions when they have run."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gyre._keras_2.report import name_option, report

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


@dataclass(frozen=True)
class Names:
    """What a program gets."""

    option: str
    """Of `gyre run`: what the reports name."""
    patches: Mapping[str, Callable[[Any], None]]
    """By module of Keras ("" is Keras itself): what to do when it has been imported."""
    others: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    """The same by the full name of a module."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Modules of Keras that are gone, and the one that has their names now: inside Keras, or absolute."""

    def patch_of(self, module: str) -> Callable[[Any], None] | None:
        """By the full name of a module."""
        place = _place_in_keras(module)
        return self.others.get(module) or (self.patches.get(place[1]) if place is not None else None)


def install(names: Names) -> Finder:
    """From now on imports get these names, in place of those that were installed before, and so do modules that have
    been imported if none were. Once for a process."""
    former = [finder for finder in sys.meta_path if isinstance(finder, Finder)]
    for finder in former:
        if finder.names is names:
            return finder
        sys.meta_path.remove(finder)
    name_option(names.option)
    finder = Finder(names)
    sys.meta_path.insert(0, finder)
    if not former:
        for name, module in list(sys.modules.items()):
            patch = names.patch_of(name)
            if patch is not None:
                patch(module)
    return finder


def is_installed() -> bool:
    """Whether any names are."""
    return any(isinstance(finder, Finder) for finder in sys.meta_path)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """In sys.meta_path before Python's own."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        patch = self.names.patch_of(fullname)
        if patch is not None:
            return _found(fullname, path, target, then=patch)
        place = _place_in_keras(fullname)
        if place is None:
            return None
        root, inside = place
        if inside in self.names.aliases:
            spec = _found(fullname, path, target)
            return spec or importlib.machinery.ModuleSpec(fullname, self, loader_state=(root, inside))
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """A module that Keras no longer has: the names of the one that has them now."""
        root, inside = spec.loader_state
        other = self.names.aliases[inside]
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
