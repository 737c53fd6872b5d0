"""Lets code that was written for the workers API of Cloudera's platforms run unchanged.

    import gyre.cdsw
    gyre.cdsw.install()
    import cdsw

or, without touching the code, `PYTHONPATH=$(python -m gyre.cdsw) python master.py`. The modules are `cdsw`,
`cml.workers_v1` and `cdsw_tensorflow_utils`. They take precedence over modules of the same names, and the workers that
are launched find them too.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

SHIM = Path(__file__).parent / "_cdsw_shim"
"""The folder of the modules."""


def install() -> None:
    """Makes the modules importable in this process and in the workers that it launches."""
    if str(SHIM) in sys.path:
        sys.path.remove(str(SHIM))  # Of PYTHONPATH, which comes after the script's own folder.
    sys.path.insert(0, str(SHIM))


def warn_of_another_utility() -> None:
    """A script's own folder comes before PYTHONPATH. The platform's file, kept there, starts TensorFlow's servers at
    one port of all workers, which on one machine fails, and its run_cluster() does not look at the failures."""
    name = "cdsw_tensorflow_utils"
    loaded = sys.modules.get(name)
    try:
        spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(name)
    except ValueError:  # It was loaded in an unusual way.
        return
    origin = None if spec is None else spec.origin
    if origin is None or Path(origin).resolve().parent == SHIM.resolve():
        return
    warnings.warn(
        f"{origin} takes precedence over Gyre's {name}: its run_cluster() starts the platform's cluster, every task of "
        "which wants the same port, and does not report tasks that fail. Rename or remove the file, or call "
        f"gyre.cdsw.install() before `import {name}`",
        stacklevel=3,
    )


if __name__ == "__main__":
    print(SHIM)
