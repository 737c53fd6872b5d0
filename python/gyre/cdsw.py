"""Lets code that was written for the workers API of Cloudera's platforms run unchanged.

    import gyre.cdsw
    gyre.cdsw.install()
    import cdsw

or, without touching the code, `PYTHONPATH=$(python -m gyre.cdsw) python master.py`. The modules are `cdsw`,
`cml.workers_v1` and `cdsw_tensorflow_utils`. They take precedence over modules of the same names, and the workers that
are launched find them too.
"""

from __future__ import annotations

import sys
from pathlib import Path

SHIM = Path(__file__).parent / "_cdsw_shim"
"""The folder of the modules."""


def install() -> None:
    """Makes the modules importable in this process and in the workers that it launches."""
    if str(SHIM) not in sys.path:
        sys.path.insert(0, str(SHIM))


if __name__ == "__main__":
    print(SHIM)
