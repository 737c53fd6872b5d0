"""Finds groups in which only some ranks have the job's secret, or in which ranks have different ones.

Such ranks cannot read each other's words. So each rank also leaves a note whether it has a secret. Anybody can write a
note, so a note never decides whom a rank believes: it only explains why the words of a rank will not come.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from gyre.distributed._words import RefusedWordError, Words
from gyre.errors import MismatchError

# A rank writes its note after its word. Where the note is there and the word is not, a stranger may have written the
# note before the rank has come.
PATIENCE_SECONDS = 5.0
# How long rank 0, which often has the store, stays for the others to read what it has found.
LONGEST_FAREWELL = timedelta(seconds=15)
MOST_NAMED = 8

HELLO = "hello"
_NOTE, _VERDICT, _HEARD = "secret", "verdict", "heard"


class Mixtures:
    """One rank's view of who has which secret, while its group forms."""

    def __init__(self, words: Words, rank: int, size: int, generation: int, description: str, *, has_secret: bool):
        """`words`: those of the ranks that have the secret that this one has, or none as this one."""
        self._words = words
        self._notes = Words(words.store, f"{generation}.note")
        self._rank = rank
        self._size = size
        self._description = description
        self._has_secret = has_secret
        self._first_seen: dict[str, float] = {}

    def note(self) -> None:
        """Call it after this rank has written its hello."""
        self._notes.write(_NOTE, self._rank, {"has": self._has_secret})

    def check_as_rank_zero(self, waits_for: int) -> None:
        """MismatchError on all ranks if the hello of `waits_for` will never come."""
        if self._words.is_there(HELLO, waits_for) or not self._lasts(_NOTE, waits_for):
            return
        verdict = self._verdict()
        if self._has_secret:
            self._words.write(_VERDICT, 0, verdict)
        self._notes.write(_VERDICT, 0, verdict)
        heard = [self._notes.name(_HEARD, rank) for rank in range(1, self._size) if self._notes.is_there(_NOTE, rank)]
        with contextlib.suppress(RuntimeError):  # torch's, when the time is up.
            self._words.store.wait(heard, LONGEST_FAREWELL)
        raise self._error(verdict)

    def check(self) -> None:
        """The same error, if rank 0 has found that."""
        if self._has_secret and self._words.is_there(_VERDICT, 0):
            self._raise_verdict(self._words)
        # A rank 0 with this rank's secret signs its verdict.
        if self._has_secret and (self._words.is_there(HELLO, 0) or not self._lasts(_VERDICT, 0)):
            return
        if self._notes.is_there(_VERDICT, 0):
            self._raise_verdict(self._notes)

    def _lasts(self, purpose: str, writer: int) -> bool:
        """Whether a note was there PATIENCE_SECONDS ago already."""
        if not self._notes.is_there(purpose, writer):
            return False
        now = time.monotonic()
        return now - self._first_seen.setdefault(f"{purpose}.{writer}", now) >= PATIENCE_SECONDS

    def _verdict(self) -> dict[str, list[int]]:
        """The ranks with the secret of rank 0, without any, and with another one."""
        found: dict[str, list[int]] = {"with": [], "without": [], "other": []}
        found["with" if self._has_secret else "without"].append(0)
        for rank in range(1, self._size):
            has = self._noted(rank)
            if self._has_secret and self._words.is_there(HELLO, rank):
                found["with"].append(rank)
            elif has is not None:
                found[("other" if self._has_secret else "with") if has else "without"].append(rank)
        return {kind: ranks[:MOST_NAMED] for kind, ranks in found.items()}

    def _noted(self, rank: int) -> bool | None:
        if not self._notes.is_there(_NOTE, rank):
            return None
        with contextlib.suppress(RefusedWordError):
            note = self._notes.read(_NOTE, rank)
            return note.get("has") is True
        return None

    def _raise_verdict(self, words: Words) -> None:
        with contextlib.suppress(RefusedWordError):
            verdict = words.read(_VERDICT, 0)
            error = self._error(verdict)
            self._notes.write(_HEARD, self._rank, {})
            raise error

    def _error(self, verdict: Mapping[str, Any]) -> MismatchError:
        parts = []
        for kind, words in (("with", "one"), ("without", "none"), ("other", "another one")):
            ranks = [rank for rank in verdict.get(kind, ()) if isinstance(rank, int)][:MOST_NAMED]
            if ranks:
                parts.append(f"{_named(ranks)} {'have' if len(ranks) > 1 else 'has'} {words}")
        return MismatchError(
            f"{self._description}: its ranks must have the same secret, or none: {', '.join(parts)}; start all of them "
            "with one `gyre run`, or set GYRE_KEY_FILE to the same file for all of them (if they are, another process "
            "writes into torch's store)"
        )


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
