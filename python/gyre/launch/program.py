"""Finds the program `gyre` for the Python side."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from gyre.errors import NotFoundError

MOST_RANKS_PER_HOST = 4096


def find_program() -> Path:
    """GYRE_PROGRAM, else the one next to this Python, else PATH's. NotFoundError says where it was searched for."""
    wanted = os.environ.get("GYRE_PROGRAM", "")
    if wanted:
        return Path(wanted)
    beside = Path(sys.executable).parent / "gyre"
    if beside.exists():
        return beside
    found = shutil.which("gyre")
    if found is None:
        raise NotFoundError(
            f"the program `gyre` is neither in {beside.parent} nor in PATH; install the package gyre-train (in a "
            "checkout: `./dev build`), or set GYRE_PROGRAM to it"
        )
    return Path(found)
