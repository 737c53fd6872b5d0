"""The thread that looks after what a device's own library has been given, for the whole process."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Protocol

from gyre._program_position import register_loop

_LOOK_SECONDS = 0.1


class Watched(Protocol):
    """What the thread asks every 0.1 s."""

    def look(self) -> bool:
        """False if nothing more can happen."""


class _Watch:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def look_after(self, watched: Watched) -> None:
        if watched in self._watched and self._thread is not None:
            return
        with self._lock:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gyre watch", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return
            self._look_at_all()

    def _look_at_all(self) -> None:
        for watched in list(self._watched):
            try:
                goes_on = watched.look()
            except Exception:
                logging.getLogger("gyre").exception("calls of a device's library are no longer watched")
                goes_on = False
            if not goes_on:
                self._watched.discard(watched)


_watch = _Watch()
look_after = _watch.look_after
# It brings nothing for which another rank could wait.
register_loop(_Watch._run.__code__, lambda _: True)
