"""Tells a device that hangs from a program that does: all ranks have made a call, and the device does not finish it."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Any, Generic, Protocol, TypeVar

from gyre._runtime import Runtime
from gyre._torch_private import flight_record
from gyre.core import _core
from gyre.errors import TimeoutError


class GivenCall(Protocol):
    """A call that a device's library is given."""

    agreed_at: float | None
    """When all ranks were seen to have made it, by time.monotonic()."""

    def is_completed(self) -> bool:
        """As a work of the library's: before there is one, the call itself may hang."""

    def describe(self) -> str:
        """At the start of a message."""


Given = TypeVar("Given", bound=GivenCall)


class DeviceWatch(Generic[Given]):
    """Of the calls of one group, which its device carries out in their order. Thread-safe."""

    def __init__(self, runtime: Runtime, timeout_seconds: float) -> None:
        """`timeout_seconds`: math.inf for no limit."""
        self._runtime = runtime
        self._timeout = timeout_seconds
        self._lock = threading.Lock()
        # Of the calls that the device may not have finished the first, and the latest, with their works.
        self._first: tuple[Given, Any] | None = None
        self._latest: tuple[Given, Any] | None = None
        self._reported: Given | None = None

    def enter(self, call: Given) -> None:
        """The library is to be given it now."""
        with self._lock:
            self._latest = (call, call)
            self._first = self._first or self._latest

    def note_work(self, call: Given, work: Any, *, may_ask: bool) -> None:
        """The library's. Two are kept at most, because they may keep tensors alive. `may_ask`: no graph is captured,
        during which no event may be asked."""
        with self._lock:
            self._latest = (call, work)
            first = self._first
            if first is None or first[0] is call or (may_ask and _has_ended(first[1])):
                self._first = self._latest

    def forget(self) -> None:
        """All of them."""
        with self._lock:
            self._first = self._latest = None

    def is_under_way(self) -> bool:
        """Whether the device has calls that it may not have finished. Asks it: not while the program may capture a
        graph."""
        with self._lock:
            return self._latest is not None and not _has_ended(self._latest[1])

    def look(self) -> None:
        """Says once that the device hangs, after the time for such warnings; TimeoutError at the limit."""
        limit = min(_core.stall_warning_seconds() or math.inf, self._timeout)
        with self._lock:
            if self._first is None:
                return
            call, work = self._first
            if call.agreed_at is None:
                return  # A rank is missing, and the engine says which.
            waited = time.monotonic() - call.agreed_at
            # Asked seldom: a graph that another thread captures meanwhile would be lost.
            if waited < limit / 2:
                return
            if _has_ended(work):
                latest = self._latest
                self._first = latest if latest is not None and latest[0] is not call else None
                if self._first is None:
                    self._latest = None
                return
        if waited < limit:
            return
        text = (
            f"{call.describe()}: all {self._runtime.size} ranks have called it, but the device of rank "
            f"{self._runtime.rank} has not finished it after {waited:.0f} s: the device, its library or the network "
            f"hangs, not the program{flight_record()}"
        )
        if waited >= self._timeout:
            raise TimeoutError(text)
        if self._reported is not call:
            self._reported = call
            logging.getLogger("gyre").warning("stall: %s", text)


def _has_ended(work: Any) -> bool:
    try:
        return bool(work.is_completed())
    except RuntimeError:  # It has failed, or was aborted; its device cannot be asked.
        return True
