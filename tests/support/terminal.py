"""A pseudo-terminal for programs under test, read through a terminal emulator."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyte

LONGEST_WAIT_SECONDS = 60


class Terminal:
    """A program on a pseudo-terminal, and what its screen shows."""

    def __init__(self, command: list[str], columns: int, environment: dict[str, str]) -> None:
        self.screen = pyte.HistoryScreen(columns, 24, history=1000)
        self._stream = pyte.ByteStream(self.screen)
        self.bytes = b""
        self._control, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.modes = termios.tcgetattr(end)
        self._end = end
        # The terminal becomes the program's own: Ctrl-C reaches it.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=end,
            stdout=end,
            stderr=end,
            env=environment,
            # A shell that starts the tests in the background has SIGINT ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def read(self, seconds: float = 0.05) -> None:
        while select.select([self._control], [], [], seconds)[0]:
            seconds = 0
            data = os.read(self._control, 1 << 16)
            self.bytes += data
            self._stream.feed(data)

    def lines(self) -> list[str]:
        """All that has been shown, what has left the screen at its top too."""
        history = ["".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top]
        return [line.rstrip() for line in [*history, *self.screen.display] if line.strip()]

    def wait_for(self, holds: Callable[[list[str]], bool]) -> None:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while not holds(self.lines()):
            assert time.monotonic() < deadline, "\n".join(self.lines())
            self.read()

    def wait_for_end(self) -> int:
        self.wait_for(lambda _lines: self.process.poll() is not None)
        self.read()
        return self.process.returncode

    def type(self, text: str) -> None:
        os.write(self._control, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """As a window does: its foreground hears of it."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press_control_c(self) -> None:
        self.type("\x03")

    def is_restored(self) -> bool:
        """Nothing was changed: the modes, the cursor, the colour; and the prompt would stand at a line's beginning."""
        plain = self.screen.cursor.attrs.fg == "default" and not self.screen.cursor.attrs.bold
        return self.modes_are_unchanged() and self.screen.cursor.x == 0 and plain

    def modes_are_unchanged(self) -> bool:
        return termios.tcgetattr(self._end) == self.modes

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._control)
        os.close(self._end)


@contextmanager
def terminal(command: list[str], variables: dict[str, str] | None = None, columns: int = 80) -> Iterator[Terminal]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "TERM": "xterm-256color"}
    opened = Terminal(command, columns, {**environment, **(variables or {})})
    try:
        yield opened
    finally:
        opened.close()
