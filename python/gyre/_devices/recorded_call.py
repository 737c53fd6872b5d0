"""A call of a process group that goes to a delegate, as its record keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gyre._operations import Kind, Reduction
from gyre._program_position import PlaceInProgram
from gyre.core import _core


class Signature(NamedTuple):
    """What the ranks must agree about in a call: see gyre/engine/request.h."""

    kind: Kind
    type_number: int
    shape: Sequence[int]
    reduction: Reduction
    root: int
    splits: Sequence[int]
    expected_splits: Sequence[int]


class Entry:
    """A call of this rank's."""

    __slots__ = ("_title", "agreed_at", "handle", "is_late", "is_made", "method", "number", "place", "signature")

    def __init__(
        self, title: str, number: int, method: str, signature: Callable[[], Signature], place: PlaceInProgram | None
    ) -> None:
        """`title`: of the group."""
        self._title = title
        self.number = number  # Among the group's collectives.
        self.method = method
        self.signature = signature
        self.place = place
        self.handle: _core.Handle | None = None
        self.agreed_at: float | None = None  # When all ranks were seen to have made it.
        self.is_made = False  # The library has taken it, or refused it.
        self.is_late = False  # A look has found that it had not yet.

    def is_completed(self) -> bool:
        return self.is_made

    def describe(self) -> str:
        return f"{self._title}: {self.method} (its collective {self.number})"
