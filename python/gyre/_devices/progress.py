"""When a device finishes what its own library was given, for a job's timeline and for `gyre explain`.

Nothing on the host waits for a device otherwise: while one of the two wants to know, a thread asks every millisecond.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gyre import _step_record
from gyre._program_position import register_loop
from gyre._runtime import Runtime

_LOOK_SECONDS = 0.001
# What is under way longer is left out: its device hangs, and that is reported elsewhere.
_MOST_UNDER_WAY = 10_000


@dataclass(slots=True)
class _Call:
    runtime: Runtime
    row: str
    operation: str
    detail: str
    size_bytes: int
    is_done: Callable[[], bool]
    began_ns: int
    then: Callable[[], None] | None


class _Progress:
    """The calls under way of this process, in the order in which its devices carry them out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, deque[_Call]] = {}  # By row.
        self._finished: dict[str, int] = {}  # When the latest one of a row was.
        self._thread: threading.Thread | None = None

    def follow(self, call: _Call) -> None:
        with self._lock:
            calls = self._under_way.setdefault(call.row, deque(maxlen=_MOST_UNDER_WAY))
            calls.append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gyre progress", daemon=True)
                self._thread.start()

    def look(self) -> bool:
        """False if nothing is under way."""
        with self._lock:
            for calls in self._under_way.values():
                while calls and _has_ended(calls[0]):
                    self._note(calls.popleft(), time.perf_counter_ns())
            return any(self._under_way.values())

    def _note(self, call: _Call, now_ns: int) -> None:
        # Before that the device was busy with the call before it.
        began_ns = max(call.began_ns, self._finished.get(call.row, 0))
        self._finished[call.row] = now_ns
        call.runtime.core.add_to_timeline(call.row, call.operation, call.detail, began_ns, now_ns)
        _step_record.delegated(call.row, call.operation, call.size_bytes, (now_ns - began_ns) / 1e3)
        if call.then is not None:
            call.then()

    def _run(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            if self.look():
                continue
            with self._lock:
                if not any(self._under_way.values()):
                    self._thread = None
                    return


def _has_ended(call: _Call) -> bool:
    try:
        return call.is_done()
    except RuntimeError:  # It has failed, or was aborted.
        return True


_progress = _Progress()
# It brings nothing for which another rank could wait.
register_loop(_Progress._run.__code__, lambda _: True)


def is_followed(runtime: Runtime) -> bool:
    """Whether anybody wants to know."""
    return _step_record.is_kept() or runtime.core.timeline_runs()


def follow(
    runtime: Runtime,
    row: str,
    operation: str,
    detail: str,
    size_bytes: int,
    is_done: Callable[[], bool],
    then: Callable[[], None] | None = None,
) -> None:
    """A call has been given to a device's library. `row`: of the timeline, for all calls that one device carries out
    one after the other. `is_done`: whether the device has finished it. `then`: to be called when it has."""
    _progress.follow(_Call(runtime, row, operation, detail, size_bytes, is_done, time.perf_counter_ns(), then))


def finish() -> None:
    """What has been finished is noted, before the runtime ends."""
    _progress.look()


def names_of(names: Sequence[str]) -> str:
    """Of operations that complete together."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
