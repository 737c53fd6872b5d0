"""Lets scripts say `import horovod.torch as hvd` (`horovod.tensorflow.keras`, `horovod.keras`, …) and get Gyre.

    import gyre.horovod
    gyre.horovod.install()
    import horovod.torch as hvd

or, without touching the script, `gyre run --horovod-compat -n 4 -- python train.py`; under any other launcher,
`python -m gyre.horovod train.py` in place of `python train.py`. A real Horovod that can be imported takes precedence:
then nothing is installed, and a warning says so. Modules that Gyre does not have (horovod.spark, elastic training, …)
cannot be imported; the error says what to use. A framework is imported when its module of Horovod is. What such scripts
use of Keras 2 and Keras 3 no longer has is there again (gyre._keras_2.tensorflow_2).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gyre import __version__
from gyre._horovod.runner import run
from gyre._job.absent_names import GRADIENT_AGGREGATION, NO_ELASTIC, TENSORFLOW_DATA
from gyre._keras_2 import finder, tensorflow_2

__all__ = ["SHIM", "install", "install_names", "load", "real_horovod", "run"]

SHIM = Path(__file__).parent / "_horovod_shim"
"""The folder that `gyre run --horovod-compat` and `python -m gyre.horovod` put into PYTHONPATH: it holds a package
`horovod` that calls load()."""

# The modules of Horovod that are modules of Gyre. Scripts use the names below horovod.torch and horovod.tensorflow for
# things that these two have as well.
_ALIASES = {
    "horovod.torch": "gyre.torch",
    "horovod.torch.mpi_ops": "gyre.torch",
    "horovod.torch.functions": "gyre.torch",
    "horovod.torch.sync_batch_norm": "gyre.torch",
    "horovod.torch.compression": "gyre._job.compression",
    "horovod.torch.optimizer": "gyre.torch.optimizer",
    "horovod.tensorflow": "gyre.tensorflow",
    "horovod.tensorflow.mpi_ops": "gyre.tensorflow",
    "horovod.tensorflow.functions": "gyre.tensorflow",
    "horovod.tensorflow.compression": "gyre._job.compression",
    "horovod.tensorflow.sync_batch_norm": "gyre.tensorflow",
    "horovod.tensorflow.keras": "gyre.keras",
    "horovod.tensorflow.keras.callbacks": "gyre.keras.callbacks",
    "horovod.keras": "gyre.keras",
    "horovod.keras.callbacks": "gyre.keras.callbacks",
    "horovod.common.exceptions": "gyre._horovod.exceptions",
    "horovod.common.process_sets": "gyre._horovod.process_sets",
    "horovod.common.util": "gyre._horovod.util",
}

_ABSENT = {
    "horovod.torch.elastic": NO_ELASTIC,
    "horovod.tensorflow.elastic": NO_ELASTIC,
    "horovod.tensorflow.keras.elastic": NO_ELASTIC,
    "horovod.keras.elastic": NO_ELASTIC,
    "horovod.tensorflow.data": TENSORFLOW_DATA,
    "horovod.tensorflow.gradient_aggregation": GRADIENT_AGGREGATION,
    "horovod.tensorflow.gradient_aggregation_eager": GRADIENT_AGGREGATION,
    "horovod._keras": "it is how Horovod wraps optimizers; gyre.keras.DistributedOptimizer wraps them",
    "horovod.spark": "a job starts with `gyre run` or a job server (docs/guide/jobs.md), not on Spark",
    "horovod.ray": "a job starts with `gyre run` or a job server (docs/guide/jobs.md), not on Ray",
    "horovod.mxnet": "MXNet has been retired; there are gyre.torch, gyre.tensorflow and gyre.keras",
}

USAGE = """\
usage: python [PYTHON_OPTION...] -m gyre.horovod SCRIPT [ARGUMENT...]
       python [PYTHON_OPTION...] -m gyre.horovod -m MODULE [ARGUMENT...]

Run a script of Horovod's unchanged: `import horovod.torch` gets Gyre in it and in the processes that it starts.
For launchers other than `gyre run`, which has --horovod-compat.

  torchrun --nproc-per-node 4 -m gyre.horovod train.py
  mpirun -n 4 python -m gyre.horovod train.py
"""


def real_horovod() -> importlib.machinery.ModuleSpec | None:
    """The path from which a Horovod that is not ours would be imported. `gyre run` may be another installation's than
    this one, and then its folder is there, not ours."""
    others = [entry for entry in sys.path if Path(entry or ".").resolve().parts[-2:] != SHIM.parts[-2:]]
    return importlib.machinery.PathFinder.find_spec("horovod", others)


def install() -> bool:
    """Makes `horovod` and what Gyre has of its modules importable in this process. False, with a warning, if a real
    Horovod is installed."""
    loaded = sys.modules.get("horovod")
    if loaded is not None:
        return bool(getattr(loaded, "__gyre__", False))
    spec = real_horovod()
    if spec is not None:
        warnings.warn(
            f"Horovod itself is installed ({spec.origin}) and is used, not Gyre. Say `import gyre.torch as hvd`, or "
            "uninstall it",
            stacklevel=2,
        )
        return False
    sys.modules.update(_modules())
    sys.meta_path.insert(0, _Aliases())
    install_names()
    return True


def install_names() -> None:
    """Gives Keras what scripts for Horovod use of Keras 2; nothing if `gyre run --keras-2018` gives it more, or if
    Horovod itself is installed."""
    if not finder.is_installed() and real_horovod() is None:
        finder.install(tensorflow_2.NAMES)


def load() -> None:
    """Called when the package in SHIM is imported: replaces it by the real Horovod, or else by Gyre's modules."""
    ours = sys.modules.pop("horovod", None)
    if install():
        return
    spec = real_horovod()
    if spec is None or spec.loader is None:
        if ours is not None:
            sys.modules["horovod"] = ours
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["horovod"] = module
    spec.loader.exec_module(module)


def _module(name: str, documentation: str, **content: object) -> types.ModuleType:
    module = types.ModuleType(name, documentation)
    module.__dict__.update(content)
    module.__dict__["__gyre__"] = True
    return module


def _modules() -> dict[str, types.ModuleType]:
    """Those that are not modules of Gyre, by name."""
    runner = importlib.import_module("gyre._horovod.runner")
    explanation = "Gyre under Horovod's name."
    version = f"0.28.1+gyre.{__version__}"
    modules = {
        "horovod": _module("horovod", explanation, __path__=[], __version__=version, run=run),
        "horovod.common": _module("horovod.common", explanation, __path__=[]),
        "horovod.runner": _module("horovod.runner", explanation, __path__=[], run=run),
        "horovod.runner.launch": _module("horovod.runner.launch", explanation, run_commandline=runner.run_commandline),
    }
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if parent in modules:
            setattr(modules[parent], child, module)
    return modules


class _Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports Gyre's modules under Horovod's names, when they are asked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname in _ABSENT:
            raise ImportError(f"{fullname} does not exist under Gyre: {_ABSENT[fullname]}")
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in _ALIASES else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(_ALIASES[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """It has run already, under its own name, which it keeps. `from horovod.torch import functions` looks for the
        module's attribute."""
        alias = module.__spec__
        assert alias is not None
        module.__spec__ = alias.loader_state
        for name, target in _ALIASES.items():
            parent, _, child = name.rpartition(".")
            if parent == alias.name and not hasattr(module, child):
                with contextlib.suppress(ModuleNotFoundError):  # Keras may be missing where TensorFlow is not.
                    setattr(module, child, importlib.import_module(target))


def _run_instead(arguments: list[str]) -> NoReturn:
    """Replaces this process by Python running the script `arguments` begin with, with SHIM in PYTHONPATH."""
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{SHIM}{os.pathsep}{others}" if others else str(SHIM)
    before = sys.orig_argv[1 : len(sys.orig_argv) - len(arguments)]  # Python's own options, then how we were named:
    options = before[:-2] if before[-1] == "gyre.horovod" else before[:-1]  # `-m gyre.horovod` or `-mgyre.horovod`.
    os.execv(sys.executable, [sys.executable, *options, *arguments])


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0].startswith("-") and (arguments[0] != "-m" or len(arguments) == 1):
        print(f"gyre.horovod: {arguments[0]!r} is not a script; options of Python go before -m", file=sys.stderr)
        return 2
    _run_instead(arguments)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
