"""Waiting in torch's store."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any


def came(store: Any, key: str, until: float) -> bool:
    """Waits for `key`; False when it is not there `until` (by time.monotonic()). Raises what the store raises when it
    fails for another reason."""
    # The store counts whole milliseconds, and must not give up a fraction of one too early.
    milliseconds = max(1, math.ceil((until - time.monotonic()) * 1000))
    try:
        store.wait([key], timedelta(milliseconds=milliseconds))
    except RuntimeError:  # torch's DistStoreError, for a timeout and for a store that is gone.
        if time.monotonic() < until:
            raise
        return False
    return True
