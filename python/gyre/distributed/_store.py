"""Waiting in torch's store."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any


def came(store: Any, key: str, until: float) -> bool:
    """Waits for `key`; False if it is not there by `until` (of time.monotonic()). Re-raises the store's error if it
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
