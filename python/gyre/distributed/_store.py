"""Waiting for words in torch's store, and reading them.

torch's store authenticates nobody: whoever reaches its port can write, replace and delete everything in it. Gyre
therefore believes nothing there that does not prove its writer (SealedWords in _words.py), or can be checked otherwise.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from gyre import _gathering
from gyre._program_position import stacklevel_of_program
from gyre.core import _core
from gyre.distributed._words import RefusedWordError, Words
from gyre.errors import AuthenticationError, PeerLostError, TimeoutError

# How long a rank that has read a refused word waits for the right one: a stranger may have written first.
GRACE_SECONDS = 30.0
PAUSE_SECONDS = 0.05
# How often a waiting rank looks for reasons why the word will never come.
HINT_SECONDS = 1.0

Value = TypeVar("Value")


def came(store: Any, key: str, until: float) -> bool:
    """Waits for `key`; False if it is not there by `until` (of time.monotonic()). Re-raises the store's error if it
    fails for another reason."""
    # The store counts whole milliseconds, and must not give up a fraction of one too early.
    milliseconds = max(1, math.ceil((until - time.monotonic()) * 1000))
    try:
        store.wait([key], timedelta(milliseconds=milliseconds))
    except RuntimeError:  # torch's DistStoreError, for a timeout and for a store that is gone.
        if time.monotonic() < until:
            raise
        return False
    return True


def word_by(words: Words, purpose: str, writer: int, until: float) -> dict[str, Any] | None:
    """What `writer` has written by `until`; None if nothing that proves it is there by then."""
    name = words.name(purpose, writer)
    while came(words.store, name, until):
        with contextlib.suppress(RefusedWordError):
            return words.read(purpose, writer)
        if time.monotonic() >= until:
            break
        time.sleep(PAUSE_SECONDS)
    return None


def count(store: Any, key: str, description: str) -> int:
    """Adds 1 to a counter. PeerLostError if the store breaks off, as TCPStore does when the counter is not a number."""
    try:
        return int(store.add(key, 1))
    except (RuntimeError, ValueError) as failure:
        raise PeerLostError(
            f"{description}: torch's store broke off while this rank was counted ({str(failure).splitlines()[0]}); its "
            "process has ended, or another process has written into the store"
        ) from failure


class Wait:
    """Reads what other ranks write into the store, all within one time limit."""

    def __init__(self, store: Any, limit: float, description: str, members: Sequence[int]) -> None:
        self.store = store
        self.description = description
        self._limit = limit
        self._until = time.monotonic() + limit
        warning_seconds = _core.stall_warning_seconds()
        self._warning_seconds = warning_seconds if warning_seconds > 0 else math.inf
        self._members = members  # The launcher's numbers; none if it does not report which ranks have ended.

    def remaining(self) -> float:
        """Seconds, at least a moment."""
        return max(0.001, self._until - time.monotonic())

    def read(
        self,
        words: Words,
        purpose: str,
        writer: int,
        accept: Callable[[dict[str, Any]], Value],
        hint: Callable[[], None] = lambda: None,
    ) -> Value:
        """accept() of what `writer` has written, or will write. While the word there is refused, by its seal or by
        accept(), waits for another one: AuthenticationError after GRACE_SECONDS. `hint` is called now and then, and
        may raise."""
        name = words.name(purpose, writer)
        refused_until: float | None = None
        while True:
            self._wait_for(name, writer, hint)
            try:
                return accept(words.read(purpose, writer))
            except RefusedWordError as refusal:
                now = time.monotonic()
                refused_until = refused_until or min(now + GRACE_SECONDS, self._until)
                if now >= refused_until:
                    raise AuthenticationError(
                        f"{self.description}: what torch's store holds as rank {writer}'s {purpose} is not believed, "
                        f"because {refusal}; another process writes into the store: keep its port (MASTER_PORT) from "
                        "strangers"
                    ) from None
            hint()
            time.sleep(PAUSE_SECONDS)

    def _wait_for(self, name: str, writer: int, hint: Callable[[], None]) -> None:
        began = time.monotonic()
        while True:
            until = min(self._until, time.monotonic() + HINT_SECONDS)
            if self._members:
                _gathering.wait_until(lambda: bool(self.store.check([name])), self._members, until)
            if came(self.store, name, until):
                return
            if time.monotonic() >= self._until:
                raise TimeoutError(
                    f"{self.description}: rank {writer} did not come to init_process_group or new_group within "
                    f"{self._limit:g} s, or what it wrote into torch's store was deleted; see what it printed, and "
                    "whether all ranks were started with the same size"
                )
            if time.monotonic() - began >= self._warning_seconds:
                self._warn(writer)
            hint()

    def _warn(self, writer: int) -> None:
        """Once: the others are late for the same reason, or come now."""
        warnings.warn(
            f"{self.description}: this rank has waited {self._warning_seconds:g} s for rank {writer} to come to "
            "init_process_group or new_group. If it is there and waits too, another process has deleted what ranks "
            "wrote into torch's store: keep its port (MASTER_PORT) from strangers",
            RuntimeWarning,
            stacklevel=stacklevel_of_program(),
        )
        self._warning_seconds = math.inf
