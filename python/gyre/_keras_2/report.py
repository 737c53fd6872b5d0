"""Which substitutions a script has used."""

from __future__ import annotations

import os
import sys

_reported: set[str] = set()
_option = "--horovod-compat"


def name_option(option: str) -> None:
    """The option of `gyre run` that the reports name from now on."""
    global _option  # noqa: PLW0603  The process has one.
    _option = option


def report(old: str, new: str) -> None:
    """ "gyre: OPTION: OLD: NEW" on rank 0's standard error, at the first use of `old`."""
    if old not in _reported and os.environ.get("GYRE_RANK", "0") == "0":
        print(f"gyre: {_option}: {old}: {new}", file=sys.stderr, flush=True)
    _reported.add(old)
