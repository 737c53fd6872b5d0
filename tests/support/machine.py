"""What a test has to know of its machine: a port that stays free, and how long the machine kept it waiting."""

from __future__ import annotations

import random
import socket
import threading
import time
from types import TracebackType

# Below what the kernel hands out by itself: neither a connection nor somebody's "any port" takes it before it is used.
FIRST_PORT, LAST_PORT = 20000, 32000


def free_port() -> int:
    """On every local address, for a server that is started a moment later."""
    for _ in range(100):
        port = random.SystemRandom().randint(FIRST_PORT, LAST_PORT)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port among 100 between {FIRST_PORT} and {LAST_PORT}")


class Stopwatch:
    """Measures what a program takes on a machine that may have other things to do.

    A thread that needs next to no time asks again and again to be woken 2 ms later. By how much that is late is how
    long the machine kept everybody waiting - because of other programs, or because it stood still itself - and is
    not counted in `seconds`. A program that waits too long by itself has nothing to do with it: the thread is woken
    in time then, and `seconds` is what a clock on the wall shows.
    """

    _STEP_SECONDS = 0.002

    def __enter__(self) -> Stopwatch:
        self._stop = threading.Event()
        self._late_seconds = 0.0
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.elapsed_seconds = time.monotonic() - self._began
        self._stop.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        return self.elapsed_seconds - self._late_seconds

    def __str__(self) -> str:
        return f"{self.seconds:.3f} s, and the machine was late by {self._late_seconds:.3f} s"

    def _look(self) -> None:
        last = time.monotonic()
        stopped = False
        while not stopped:
            stopped = self._stop.wait(self._STEP_SECONDS)
            now = time.monotonic()
            late = now - last - self._STEP_SECONDS
            # What a thread is late on an idle machine.
            if late > self._STEP_SECONDS:
                self._late_seconds += late
            last = now
