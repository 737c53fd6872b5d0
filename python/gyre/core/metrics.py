"""What this rank logs for `gyre run --metrics`, behind gyre.log: docs/guide/metrics.md."""

from __future__ import annotations

import atexit
import contextlib
import operator
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, SupportsFloat, SupportsIndex

if TYPE_CHECKING:
    from gyre.core import _core

# At exit, for a launcher that has not read for long.
_FLUSH_SECONDS = 1.0


class _State:
    def __init__(self) -> None:
        self.asked = False
        self.logger: _core.MetricsLogger | None = None
        self.step = 0


_state = _State()


def log(values: Mapping[str, SupportsFloat], step: SupportsIndex | None = None, *, every_rank: bool = False) -> None:
    """Logs numbers under their names, for a step of the training, to the file of `gyre run --metrics`.

    What rank 0 passes is kept, and with `every_rank` what each rank does. Without `step`, it is one more than in this
    rank's last call. Takes microseconds and never waits. Does nothing without `gyre run --metrics`.
    Errors: InvalidArgumentError for a name that begins with "gyre/", has control characters, or more than 200 bytes;
    TypeError for a value that is not a number, and a step that is not a whole one.
    """
    state = _state
    logger = state.logger
    if logger is None:
        if state.asked:
            return
        logger = _start()
        if logger is None:
            return
    state.step = state.step + 1 if step is None else _whole(step)
    if every_rank or logger.rank == 0:
        logger.log(values if isinstance(values, dict) else dict(values), state.step)
    logger.log_engine(state.step)


def _whole(step: SupportsIndex) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        number = None
    if number is None or not -(1 << 63) <= number < 1 << 63:
        raise TypeError(f"gyre.log: a step is a whole number of at most 64 bits, not {step!r}") from None
    return number


def joined(runtime: _core.Runtime) -> None:
    """This process has become a rank of a job or a group: what its engine counts belongs to the job's metrics."""
    logger = _state.logger or (None if _state.asked else _start())
    if logger is not None:
        logger.joined(runtime)


def leaving(runtime: _core.Runtime) -> None:
    """The rank is about to leave it."""
    if _state.logger is not None:
        _state.logger.leaving(runtime)


def _start() -> _core.MetricsLogger | None:
    from gyre.core import _core  # noqa: PLC0415 - `import gyre` does without it.

    _state.asked = True
    _state.logger = _core.metrics_logger()
    if _state.logger is not None:
        atexit.register(_flush, _state.logger)
    return _state.logger


def _flush(logger: _core.MetricsLogger) -> None:
    if not logger.flush(_FLUSH_SECONDS):
        with contextlib.suppress(OSError, ValueError):  # Nobody reads that either.
            print(
                f"gyre.log: the last values of rank {logger.rank} are lost: `gyre run` has not read for too long",
                file=sys.stderr,
                flush=True,
            )
