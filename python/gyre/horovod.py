"""Lets scripts say `import horovod.torch as hvd` and get Gyre.

    import gyre.horovod
    gyre.horovod.install()
    import horovod.torch as hvd

or, without touching the script, `gyre run --horovod-compat -n 4 -- python train.py`; under any other launcher,
`python -m gyre.horovod train.py` in place of `python train.py`. A real Horovod that can be imported takes precedence:
then nothing is installed, and a warning says so. Modules that Gyre does not have (horovod.tensorflow, horovod.spark,
elastic training, …) cannot be imported.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
import warnings
from pathlib import Path
from typing import NoReturn

from gyre import __version__
from gyre._horovod.runner import run

__all__ = ["SHIM", "install", "load", "real_horovod", "run"]

SHIM = Path(__file__).parent / "_horovod_shim"
"""The folder that `gyre run --horovod-compat` and `python -m gyre.horovod` put into PYTHONPATH: it holds a package
`horovod` that calls load()."""

USAGE = """\
usage: python [PYTHON_OPTION...] -m gyre.horovod SCRIPT [ARGUMENT...]
       python [PYTHON_OPTION...] -m gyre.horovod -m MODULE [ARGUMENT...]

Run a script of Horovod's unchanged: `import horovod.torch` gets Gyre in it and in the processes that it starts.
For launchers other than `gyre run`, which has --horovod-compat.

  torchrun --nproc-per-node 4 -m gyre.horovod train.py
  mpirun -n 4 python -m gyre.horovod train.py
"""


def real_horovod() -> importlib.machinery.ModuleSpec | None:
    """The path from which a Horovod that is not ours would be imported."""
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != SHIM.resolve()]
    return importlib.machinery.PathFinder.find_spec("horovod", others)


def install() -> bool:
    """Makes `horovod` and `horovod.torch` importable in this process. False, with a warning, if a real Horovod is
    installed."""
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
    return True


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
    """By name. Scripts use the names below horovod.torch for things that horovod.torch has too."""
    torch = importlib.import_module("gyre.torch")
    runner = importlib.import_module("gyre._horovod.runner")
    explanation = "Gyre under Horovod's name."
    version = f"0.28.1+gyre.{__version__}"
    modules = {
        "horovod": _module("horovod", explanation, __path__=[], __version__=version, run=run),
        "horovod.torch": torch,
        "horovod.torch.mpi_ops": torch,
        "horovod.torch.functions": torch,
        "horovod.torch.sync_batch_norm": torch,
        "horovod.torch.compression": importlib.import_module("gyre.torch.compression"),
        "horovod.torch.optimizer": importlib.import_module("gyre.torch.optimizer"),
        "horovod.common": _module("horovod.common", explanation, __path__=[]),
        "horovod.runner": _module("horovod.runner", explanation, __path__=[], run=run),
        "horovod.runner.launch": _module("horovod.runner.launch", explanation, run_commandline=runner.run_commandline),
    }
    for name in ("exceptions", "process_sets", "util"):
        modules[f"horovod.common.{name}"] = importlib.import_module(f"gyre._horovod.{name}")
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if parent in modules and not hasattr(modules[parent], child):
            setattr(modules[parent], child, module)
    return modules


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
