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
        return importlib.import_module("gyre.core._core")
    except ModuleNotFoundError as failure:
        if failure.name != "gyre.core._core":
            raise
        raise ImportError(_why_it_is_missing(Path(__file__).parents[3])) from None


def _why_it_is_missing(folder: Path) -> str:
    if (folder / "dev").exists():
        return f"Gyre's extension module has not been built in {folder}: run `./dev build` there"
    version = ".".join(map(str, sys.version_info[:2]))
    return f"this installation of gyre-train has no extension module for Python {version}: install it with that Python"
