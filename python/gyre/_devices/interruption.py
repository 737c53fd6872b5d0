"""How a program that waits for a device learns of a failure: it is raised in the program's threads, wherever they are.

A device's library that is ended leaves the tensors of its calls as they are, and what waits for them (`tensor.cpu()`)
returns. The failure is raised there in place of the wrong numbers (ADR 129).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from gyre._program_position import register_loop
from gyre.core import _core
from gyre.errors import Error

# How long a program may handle an exception of its own before it is interrupted in that.
_PATIENCE_SECONDS = 2.0
# How long a device that hangs may keep a thread from noticing that its library has been ended, or from ending it.
LAST_WAIT_SECONDS = 5.0
_LOOK_SECONDS = 0.1
_PACKAGE = str(Path(__file__).parents[1])


class _Program:
    """What this process's program knows."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # Failures that were raised in each of its threads.

    def seen_in(self, thread: int) -> int:
        return self._seen.get(thread, 0)

    def note_seen(self) -> None:
        """A failure is being raised in this thread: those that others have found meanwhile are consequences, or the
        same."""
        thread = threading.get_ident()
        self._seen[thread] = self.seen_in(thread) + 1
        if threading.current_thread() is not threading.main_thread():
            _core.raise_in_thread(thread, None)


_program = _Program()
note_seen = _program.note_seen


class Callers:
    """The threads that have made calls of one group. Thread-safe."""

    def __init__(self) -> None:
        # By thread: what the program had seen at its last call, and the exception that it handled then.
        self._threads: dict[int, tuple[int, int]] = {}

    def note(self) -> None:
        """The current thread makes a call."""
        thread = threading.get_ident()
        self._threads[thread] = (_program.seen_in(thread), id(sys.exc_info()[1]))

    def interrupt(self, failure: Error, on_seen: Callable[[], object]) -> Callable[[], bool] | None:
        """Raises `failure` in these threads, or in the main thread if only torch's own have made calls; not in one that
        has seen a failure since then, nor in the current one. `on_seen`: called when it is raised. The result tells
        whether the main thread has not come to it yet, because it is in a function of C; None if it need not."""
        main = threading.main_thread().ident
        assert main is not None
        of_python = {one.ident for one in threading.enumerate() if not isinstance(one, threading._DummyThread)}
        threads = {thread: then for thread, then in list(self._threads.items()) if thread in of_python}
        if not threads and self._threads:
            threads = {main: (_program.seen_in(main), id(None))}
        in_main_thread = None
        for thread, (seen, handled) in threads.items():
            if thread == threading.get_ident() or seen != _program.seen_in(thread):
                continue
            if thread == main:
                in_main_thread = _InMainThread(main, failure, seen, handled, on_seen)
            else:
                _core.raise_in_thread(thread, _made_by_itself(failure, on_seen))
        return None if in_main_thread is None else lambda: not in_main_thread.was_there


class _InMainThread:
    """A failure on its way there."""

    def __init__(self, main: int, failure: Error, seen: int, handled: int, on_seen: Callable[[], object]) -> None:
        self._main = main
        self._failure = failure
        self._seen = seen
        self._handled = handled
        self._on_seen = on_seen
        self._began = time.monotonic()
        self.was_there = False
        if not _core.call_in_main_thread(self._arrive):
            _core.raise_in_thread(main, _made_by_itself(failure, on_seen))

    def _arrive(self) -> None:
        self.was_there = True
        frame = sys._getframe().f_back
        handled = sys.exc_info()[1]
        if frame is None or _program.seen_in(self._main) != self._seen or self._is_known(handled):
            return  # The program has ended, or knows of it.
        if _is_finalizer(frame) or (
            handled is not None and id(handled) != self._handled and time.monotonic() - self._began < _PATIENCE_SECONDS
        ):
            _core.call_in_main_thread(self._arrive)  # Between the next two instructions.
            return
        note_seen()
        self._on_seen()
        raise self._failure.with_traceback(None)

    def _is_known(self, handled: BaseException | None) -> bool:
        """Whether the program is handling an error of Gyre's, since its last call."""
        while handled is not None and id(handled) != self._handled:
            if isinstance(handled, Error):
                return True
            handled = handled.__cause__ or handled.__context__
        return False


def _is_finalizer(frame: FrameType | None) -> bool:
    """Whether Python would drop what is raised here."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _made_by_itself(failure: Error, on_seen: Callable[[], object]) -> type[Error]:
    """Its class, for a thread that makes the exception without arguments."""
    kind = type(failure)

    def make(self: Any) -> None:
        kind.__init__(self, *failure.args)
        self.code = failure.code
        note_seen()
        on_seen()

    return type(kind.__name__, (kind,), {"__init__": make, "__module__": kind.__module__, "__doc__": kind.__doc__})


def end_if_it_hangs(is_elsewhere: Callable[[], bool] | None) -> None:
    """Of a process whose device may hang: ends it if that keeps the main thread from being interrupted, or from leaving
    the job at the end of the program. `is_elsewhere`: of Callers.interrupt()."""
    arguments = (is_elsewhere or (lambda: False),)
    threading.Thread(target=_end_if_it_hangs, args=arguments, name="gyre end", daemon=True).start()


def _end_if_it_hangs(is_elsewhere: Callable[[], bool]) -> None:
    until = time.monotonic() + LAST_WAIT_SECONDS
    while time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
        if not is_elsewhere() and not _is_leaving():
            until = time.monotonic() + LAST_WAIT_SECONDS
    logging.getLogger("gyre").error(
        "its main thread has been in a function of C for %.0f s since then: the process ends", LAST_WAIT_SECONDS
    )
    logging.shutdown()
    os._exit(1)


def _is_leaving() -> bool:
    """Whether the program has ended, and its last function is one of Gyre's."""
    main = threading.main_thread()
    frame = sys._current_frames().get(main.ident or 0)
    return not main.is_alive() and frame is not None and frame.f_code.co_filename.startswith(_PACKAGE)


# It brings nothing for which another rank could wait.
register_loop(_end_if_it_hangs.__code__, lambda _: True)
