"""What this machine gives its workers: an address for each of them, and GPUs."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

from gyre.errors import Error

SESSION_ADDRESS = "127.0.0.1"
_FIRST = 2
_LAST = 254


class Addresses:
    """One loopback address per worker, so that workers never compete for a port: the whole of 127.0.0.0/8 is this
    machine. Each session has a network of its own there."""

    def __init__(self) -> None:
        # Not 127.0.0.0/16, which the virtual nodes of the job service use.
        self.network = f"127.{1 + secrets.randbelow(250)}.{secrets.randbelow(256)}."
        self._next = _FIRST
        self._several = _can_bind(f"{self.network}{_FIRST}")

    def take(self) -> str:
        """Addresses are reused after 253 workers. Without a whole loopback network all get 127.0.0.1."""
        if not self._several:
            return SESSION_ADDRESS
        address = f"{self.network}{self._next}"
        self._next = _FIRST if self._next == _LAST else self._next + 1
        return address


def _can_bind(address: str) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind((address, 0))
        except OSError:
            return False
    return True


class Gpus:
    """The GPUs that this process may use, each given to one worker at a time."""

    def __init__(self) -> None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            count = sum(1 for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdigit())
            self._all = [str(number) for number in range(count)]
        else:
            self._all = [one.strip() for one in visible.split(",") if one.strip() not in ("", "-1")]
        self._free = list(self._all)

    def take(self, count: int) -> Sequence[str]:
        """Their indices, for CUDA_VISIBLE_DEVICES. Error if fewer are free."""
        if count > len(self._free):
            raise Error(f"GPUs: it needs {count}, and {len(self._free)} of the {len(self._all)} here are free")
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def give_back(self, taken: Sequence[str]) -> None:
        self._free += taken
