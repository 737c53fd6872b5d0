"""The extension module `_core` (C++ engine). Not for users, who import `gyre.torch`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Called by `from gyre.core import _core` until the module has been imported."""
    if name != "_core":
        raise AttributeError(f"module 'gyre.core' has no attribute {name!r}")
    try:
        module = importlib.import_module("gyre.core._core")
    except ModuleNotFoundError as failure:
        if failure.name != "gyre.core._core":
            raise
        raise ImportError(_why_it_is_missing(Path(__file__).parents[3])) from None
    module.__dict__["__getattr__"] = _say_that_it_is_old
    return module


def _say_that_it_is_old(name: str) -> object:
    """Called where the Python files ask for what the module has not got: a checkout that was pulled and not built."""
    remedy = "run `./dev build`" if (Path(__file__).parents[3] / "dev").exists() else "install gyre-train again"
    raise AttributeError(
        f"Gyre's extension module has no {name!r}: it is of another state than its Python files; {remedy}"
    )


def _why_it_is_missing(folder: Path) -> str:
    if (folder / "dev").exists():
        return f"Gyre's extension module has not been built in {folder}: run `./dev build` there"
    version = ".".join(map(str, sys.version_info[:2]))
    return f"this installation of gyre-train has no extension module for Python {version}: install it with that Python"
