"""The calls of a process group that go to a delegate, which the engine compares between the ranks while the device's
own library carries them out (ADR 122).

Such a library hangs where ranks call different operations, and in the end all of them fail alike. The record says which
calls differ, and in which lines; the engine says which rank has not called; and where all have, the device or the
network hangs.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from gyre._devices import interruption
from gyre._devices.device_watch import DeviceWatch
from gyre._devices.interruption import Callers, end_if_it_hangs, note_seen
from gyre._devices.recorded_call import Entry, Signature
from gyre._devices.watch import look_after
from gyre._operations import Kind
from gyre._program_position import place_in_program
from gyre._runtime import Runtime
from gyre._tensors.requests import make_request
from gyre.core import _core
from gyre.errors import AbortedError, Error, MismatchError, ShutDownError, TimeoutError

# In the errors about messages that differ.
DISAGREEMENT = "the ranks disagree about a message"

_LOOK_SECONDS = 0.1
# For the other ranks' lines after a mismatch, which all of them see within milliseconds.
_PATIENCE_SECONDS = 4.0
_LINE_BYTES = 200


class Record:
    """Of one group, whose calls come in the same order on all ranks. Thread-safe."""

    def __init__(
        self,
        runtime: Runtime,
        title: str,
        timeout_seconds: float,
        abort: Callable[[str], None],
        as_raised: Callable[[Error], Error],
    ) -> None:
        """`title`: of the group. `abort`: of it and its delegates, with a reason; called on the record's thread.
        `as_raised`: the error of the group's interface."""
        self._runtime = runtime
        self._title = title
        self._abort = abort
        self._as_raised = as_raised
        self.callers = Callers()
        self._device = DeviceWatch[Entry](runtime, timeout_seconds)
        self._new: deque[Entry] = deque()
        self._announced: deque[Entry] = deque()
        self._ended = False
        self._is_watched = False
        self._looking = threading.RLock()
        self._failing = threading.RLock()  # Taken before all other locks.
        self._found: tuple[Error, Entry | None] | None = None  # A failure, and perhaps the call, before it is told.
        self.failure: Error | None = None  # Of an earlier call: the group is of no use any more.
        self._is_told = False  # The program has seen the failure.

    def enter(self, number: int, method: str, signature: Callable[[], Signature]) -> Entry:
        """A call that the library is to be given now. The record's thread announces it to the other ranks: submitting
        it here would take longer than the call itself."""
        entry = Entry(self._title, number, method, signature, place_in_program(sys._getframe(1)))
        self._device.enter(entry)
        self._new.append(entry)
        if not self._is_watched:
            self._is_watched = True
            look_after(self)
        return entry

    def take_back(self, entry: Entry) -> bool:
        """Of a call that the library has refused: whether the other ranks have not heard of it yet."""
        with self._looking:
            entry.is_made = True
            if entry.handle is not None or entry not in self._new:
                return False
            self._new.remove(entry)
            return True

    def note_work(self, entry: Entry, work: Any, *, may_ask: bool) -> None:
        """The delegate's: see DeviceWatch."""
        self._device.note_work(entry, work, may_ask=may_ask)

    def tell(self) -> Error:
        """The failure, as it is to be raised in the program."""
        assert self.failure is not None
        self._is_told = True
        note_seen()
        return self._as_raised(self.failure)

    def finish(self) -> None:
        """Before the group is left: waits until this rank's last calls have been compared with those of the others.
        Raises what that finds, and a failure that no call has raised."""
        while self.look():
            with self._looking:
                open_call = self._announced[0].handle if self._announced else None
            if open_call is None:
                break
            with contextlib.suppress(Error):  # The next look sees it.
                open_call.wait_for(_LOOK_SECONDS)
        if self._failing.acquire(timeout=interruption.LAST_WAIT_SECONDS):  # Another thread may be about to tell one.
            self._failing.release()
        if self.failure is not None and not self._is_told:
            raise self.tell()

    def end(self) -> None:
        """When this returns, the record's thread has nothing more to do with the group."""
        with self._looking:
            self._ended = True
            self._device.forget()

    def look(self) -> bool:
        """Looks at what has happened since the last look, and announces new calls. False if nothing more can happen."""
        with self._looking:
            if self._found is None:
                self._look()
            found = self._found
        if found is not None:
            self.fail(*found)
        return not self._ended

    def _look(self) -> None:
        entry = None
        try:
            while self._announced and not self._ended:
                entry = self._announced[0]
                assert entry.handle is not None
                if not entry.handle.done():
                    break
                self._announced.popleft()
                entry.handle.wait()
                entry.agreed_at = time.monotonic()
            while self._new and not self._ended:
                entry = self._new[0]
                if not entry.is_made and not entry.is_late:
                    # The library may refuse it yet. If it has not taken it at the next look either, it waits for the
                    # other ranks, as NCCL does where it connects them.
                    entry.is_late = True
                    break
                entry.handle = self._runtime.core.submit(self._request(entry))
                self._announced.append(self._new.popleft())
            if not self._ended:
                self._device.look()
                entry = None
                self._look_at_engine()
        except ShutDownError:
            self.end()  # In good order.
        except Error as failure:
            self._found = failure, entry

    def _look_at_engine(self) -> None:
        """All ranks have made the calls so far, and one may have died since then: the device waits for it."""
        try:
            self._runtime.core.check()
        except Error:
            if self._device.is_under_way():
                raise

    def _request(self, entry: Entry) -> _core.Request:
        signature = entry.signature()
        return _core.Request(
            kind=signature.kind,
            name=f"collective {entry.number} of {self._title}",
            data_type=signature.type_number,
            shape=list(signature.shape),
            operation=signature.reduction.operation,
            prescale=signature.reduction.prescale,
            root=signature.root,
            splits=list(signature.splits),
            expected_splits=list(signature.expected_splits),
            transient=True,
            elsewhere=True,
        )

    def fail(self, failure: Error, entry: Entry | None = None) -> None:
        """Ends the group, if it has not failed yet. `entry`: the call that the ranks disagree about, if they do."""
        if not self._failing.acquire(timeout=interruption.LAST_WAIT_SECONDS):
            return  # Its device hangs, and keeps the thread that has found an earlier failure.
        try:
            if self.failure is not None:
                return
            if isinstance(failure, MismatchError) and entry is not None:
                failure = MismatchError(f"{failure}. {self._lines(entry)}")
            if isinstance(failure, AbortedError) and DISAGREEMENT in str(failure):
                failure = MismatchError(str(failure))  # Another rank found it first: these are its words.
            self.failure = failure
            # The program may be in a function of C for long, where it cannot be interrupted.
            logging.getLogger("gyre").error("rank %d: %s", self._runtime.rank, failure)
            # Before the library is ended: what waits for it goes on then.
            is_elsewhere = None if self._is_told else self.callers.interrupt(self._as_raised(failure), self._note_told)
            if isinstance(failure, TimeoutError):
                end_if_it_hangs(is_elsewhere)
            with contextlib.suppress(Error):
                self._abort(str(failure))
            self.end()
        finally:
            self._failing.release()

    def _note_told(self) -> None:
        self._is_told = True

    def _lines(self, entry: Entry) -> str:
        """Where all ranks have called it. Collective; a rank that has ended is left out."""
        own = str(entry.place or "a thread of torch's").encode()[:_LINE_BYTES].ljust(_LINE_BYTES, b"\0")
        row = torch.frombuffer(bytearray(own), dtype=torch.uint8).unsqueeze(0)
        try:
            handle = self._runtime.core.submit(
                make_request(
                    Kind.ALLGATHER, f"lines of collective {entry.number} of {self._title}", row, row.shape, source=row
                )
            )
            if handle.wait_for(_PATIENCE_SECONDS):
                handle.wait()
                found = bytes(memoryview(handle.take_result()[0]))
                lines = [
                    found[start : start + _LINE_BYTES].rstrip(b"\0").decode(errors="replace")
                    for start in range(0, len(found), _LINE_BYTES)
                ]
                return "Called at: " + "; ".join(f"rank {rank}: {line}" for rank, line in enumerate(lines))
        except Error:
            pass  # Another rank has ended the group.
        return f"Rank {self._runtime.rank} has called it at {entry.place or 'a thread of torch'}"
