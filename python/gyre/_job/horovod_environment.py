"""HOROVOD_* variables: which of them have an effect here, and one warning for the others."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

# Read by gyre/engine/options.cc and gyre/engine/runtime.cc, or always in effect.
HONOURED = frozenset(
    {
        "HOROVOD_FUSION_THRESHOLD",
        "HOROVOD_TIMELINE",
        "HOROVOD_TIMELINE_MARK_CYCLES",
        "HOROVOD_STALL_CHECK_DISABLE",
        "HOROVOD_STALL_CHECK_TIME_SECONDS",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        "HOROVOD_LOG_LEVEL",
        "HOROVOD_START_TIMEOUT",
        "HOROVOD_DYNAMIC_PROCESS_SETS",
        # Set by `gyre run`, for scripts that read them.
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        "HOROVOD_LOCAL_RANK",
        "HOROVOD_LOCAL_SIZE",
        "HOROVOD_CROSS_RANK",
        "HOROVOD_CROSS_SIZE",
    }
)


def ignored(environment: Mapping[str, str]) -> list[str]:
    """The variables that are set and have no effect here. Pure."""
    return sorted(name for name in environment if name.startswith("HOROVOD_") and name not in HONOURED)


def warn_of_ignored() -> None:
    """Warns about them, once per process (like all warnings)."""
    names = ignored(os.environ)
    if names:
        warnings.warn(
            f"these variables have no effect under Gyre: {', '.join(names)} (docs/guide/from_horovod.md lists the ones "
            "that have)",
            stacklevel=3,
        )
