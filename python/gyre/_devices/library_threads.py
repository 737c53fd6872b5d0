"""The threads that a device's library starts for itself. They carry out calls, and bring nothing for which another rank
could wait: a deadlock is certain also while they run (ADR 72)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from gyre._program_position import register_library_threads

_TASKS = Path("/proc/self/task")
# Of a thread's stat after its name, which is in parentheses: since when it runs, which tells it from a later one that
# has got its number.
_STARTED = 19

_known: dict[int, str] = {}


@contextlib.contextmanager
def started_here() -> Iterator[None]:
    """Those that begin meanwhile, and are not Python's, are a library's."""
    before = _numbers()
    try:
        yield
    finally:
        for number in _numbers() - before:
            started = _started(number)
            if started is not None:
                _known[number] = started


def _numbers() -> set[int]:
    try:
        return {int(task.name) for task in _TASKS.iterdir()}
    except OSError:
        return set()


def _started(number: int) -> str | None:
    try:
        return (_TASKS / str(number) / "stat").read_text().rpartition(")")[2].split()[_STARTED]
    except OSError:
        return None


def _living() -> list[int]:
    of_python = {thread.native_id for thread in threading.enumerate()}
    for number, started in list(_known.items()):
        if number in of_python or _started(number) != started:
            del _known[number]
    return list(_known)


register_library_threads(_living)
