"""init() for TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gyre._job import initialization
from gyre._job.process_sets import ProcessSet
from gyre._tensorflow.threads import share_cores


def init(comm: Any = None, process_sets: str | Sequence[ProcessSet] | None = None) -> None:
    """As gyre.keras.init()."""
    initialization.init(comm, process_sets)
    share_cores()
