"""Python runs this at its start under `gyre run --keras-2018`: the first import of Keras or TensorFlow then gets the
names of 2018 (gyre.keras_2018). Programs that import neither do not notice."""

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
# Its sitecustomize gives a part of these names, and leaves that to this one.
HOROVOD_SHIM = SHIM.parent / "_horovod_shim"


class _FirstImport(importlib.abc.MetaPathFinder):
    """Installs gyre.keras_2018 when it is needed, since importing Gyre takes longer than starting Python."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in ("keras", "tensorflow"):
            return None
        sys.meta_path.remove(self)
        finder = importlib.import_module("gyre.keras_2018").install_names()
        spec: importlib.machinery.ModuleSpec | None = finder.find_spec(fullname, path, target)
        return spec


def _run_the_next() -> None:
    """The sitecustomize that Python would have run without this one."""
    others = [entry for entry in sys.path if Path(entry or ".").resolve() not in (SHIM, HOROVOD_SHIM)]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _FirstImport())
_run_the_next()
