"""Python runs this at its start under `gyre run --horovod-compat`: the first import of Keras or TensorFlow then gets
the names of Keras 2 that scripts for Horovod use (gyre.horovod). Programs that import neither do not notice."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from pathlib import Path

SHIM = Path(__file__).parent.resolve()
# Its sitecustomize gives these names and more.
KERAS_2018_SHIM = SHIM.parent / "_keras_2018_shim"


class _FirstImport(importlib.abc.MetaPathFinder):
    """Installs the names when they are needed, since importing Gyre takes longer than starting Python."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname.partition(".")[0] in ("keras", "tensorflow"):
            sys.meta_path.remove(self)
            importlib.import_module("gyre.horovod").install_names()
            return importlib.util.find_spec(fullname)
        return None


def _run_the_next() -> None:
    """The sitecustomize that Python would have run without this one."""
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != SHIM]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if not any(Path(entry or ".").resolve() == KERAS_2018_SHIM for entry in sys.path):
    sys.meta_path.insert(0, _FirstImport())
_run_the_next()
