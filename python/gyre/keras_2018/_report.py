"""Which substitutions a script has used."""

from __future__ import annotations

import os
import sys

_reported: set[str] = set()


def report(old: str, new: str) -> None:
    """ "gyre: --keras-2018: OLD: NEW" on rank 0's standard error, at the first use of `old`."""
    if old not in _reported and os.environ.get("GYRE_RANK", "0") == "0":
        print(f"gyre: --keras-2018: {old}: {new}", file=sys.stderr, flush=True)
    _reported.add(old)
