"""Lets Hugging Face Accelerate take the backend gyre on CPUs.

There it refuses every backend but gloo and MPI: `InitProcessGroupKwargs(backend="gyre")`, the one place where its users
name a backend, ends in "not available". Its decision is one function, `PartialState._prepare_backend`; ours stands
around it and answers where the backend is ours.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MODULE = "accelerate.state"


def serve() -> None:
    """Now if Accelerate has been imported, else when it will be. Cheap; a second call does nothing."""
    module = sys.modules.get(MODULE)
    if module is not None:
        _serve_in(module)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _serve_in(module: ModuleType) -> None:
    state = getattr(module, "PartialState", None)
    original = getattr(state, "_prepare_backend", None)
    distributed_type = getattr(module, "DistributedType", None)
    # Another version may do this elsewhere: what is not known is left alone.
    if state is None or original is None or hasattr(original, "serves_gyre") or distributed_type is None:
        return

    @functools.wraps(original)
    def prepare(self: Any, cpu: bool = False, sagemaker_dp: Any = False, backend: str | None = None) -> Any:
        if backend != "gyre":
            return original(self, cpu, sagemaker_dp, backend)
        _, kind = original(self, cpu, sagemaker_dp, "gloo")
        return (backend, kind) if kind == distributed_type.MULTI_CPU else original(self, cpu, sagemaker_dp, backend)

    prepare.serves_gyre = True  # type: ignore[attr-defined]
    state._prepare_backend = prepare


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets the others find Accelerate's module, and has a word with it once it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, original: Any) -> None:
        self._original = original

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._original.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._original.exec_module(module)
        _serve_in(module)

    def __getattr__(self, name: str) -> Any:
        # get_source and others, for whoever asks (inspect, tracebacks).
        return getattr(self._original, name)
