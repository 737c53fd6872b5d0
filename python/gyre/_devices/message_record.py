"""Messages of a process group that go to a delegate (`send`, `recv`): the two ranks of each compare their calls in the
background, by notes in host memory, while the device's own library carries them out.

Such a library waits for ever, or writes beyond a message's end, where the other rank calls something else or nothing.
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

from gyre._devices.record import DISAGREEMENT
from gyre._program_position import PlaceInProgram, place_in_program
from gyre._tensors.memory import DATA_TYPE_NUMBERS, memory_of
from gyre.core import _core
from gyre.errors import Error, MismatchError, ShutDownError, TimeoutError

_LOOK_SECONDS = 0.1
_NOTE_BYTES = 320
# Apart from a program's own, which have 32 bits. One for what the sender of a message writes, one for its receiver.
_TAGS = {"send": -(1 << 40), "recv": -(1 << 40) - 1}
_OTHER = {"send": "recv", "recv": "send"}
_WORDS = {"send": "a send to", "recv": "a receive from"}
# A program may be far ahead of its device; the other rank keeps what it has not asked for yet.
_MOST_UNDER_WAY = 1000


class _Note:
    """A message of this rank's."""

    __slots__ = ("handles", "method", "number", "peer", "place", "received", "reported", "sent", "since", "what")

    def __init__(self, method: str, peer: int, number: int, tensor: torch.Tensor, place: PlaceInProgram | None) -> None:
        self.method = method
        self.peer = peer
        self.number = number
        self.what = (tensor.dtype, tensor.shape)  # Made to words later.
        self.place = place
        self.since = time.monotonic()
        self.reported = False
        self.handles: list[_core.MessageHandle] = []
        self.sent = self.received = torch.empty(0, device="cpu")

    def what_is_moved(self) -> str:
        """Which both ranks must agree about."""
        dtype, shape = self.what
        return f"{shape.numel()} elements of {str(dtype).removeprefix('torch.')}"

    def describe(self) -> str:
        return f"{_WORDS[self.method]} rank {self.peer} of {self.what_is_moved()}, shape {list(self.what[1])}"

    def line(self) -> str:
        return str(self.place or "a thread of torch's")


class MessageRecord:
    """Of one group. Thread-safe."""

    def __init__(
        self, rank: int, title: str, timeout_seconds: float, messages: _core.PointToPoint, fail: Callable[[Error], None]
    ) -> None:
        """`messages`: the group's, in host memory. `fail`: ends the group; called on the record's thread."""
        self._rank = rank
        self._title = title
        self._timeout = timeout_seconds
        self._messages = messages
        self._fail = fail
        self._new: deque[_Note] = deque()
        self._under_way: deque[_Note] = deque()
        self._counts: dict[tuple[str, int], int] = {}
        self._ended = False
        self._looking = threading.RLock()
        self._failure: Error | None = None  # Found, and perhaps not told yet.

    def enter(self, method: str, tensor: torch.Tensor, peer: int) -> None:
        """A call, of which the record's thread tells the other rank."""
        number = self._counts[method, peer] = self._counts.get((method, peer), 0) + 1
        self._new.append(_Note(method, peer, number, tensor, place_in_program(sys._getframe(1))))

    def finish(self) -> None:
        """Before the group is left: waits until the other ranks have made the calls that this one's need, or one is
        found to differ, which fails the group."""
        while self.look() and (self._new or self._under_way):
            with self._looking:
                waiting = [handle for note in self._under_way for handle in note.handles if not handle.done()]
            if waiting:
                with contextlib.suppress(Error):  # The next look sees it.
                    waiting[0].wait_for(_LOOK_SECONDS)

    def end(self) -> None:
        """When this returns, the record's thread has nothing more to do with the group."""
        with self._looking:
            self._ended = True

    def look(self) -> bool:
        """Looks at what the other ranks have called, and tells them of new calls. False if nothing more can happen."""
        with self._looking:
            self._look()
            failure = self._failure
        if failure is not None:
            self._fail(failure)  # Not under the lock: it ends this record too, and the other one of the group.
        return not self._ended

    def _look(self) -> None:
        try:
            while self._new and len(self._under_way) < _MOST_UNDER_WAY and not self._ended:
                self._tell(self._new[0])
                self._under_way.append(self._new.popleft())
            for note in list(self._under_way):
                if self._ended:
                    break
                if all(handle.done() for handle in note.handles):
                    self._under_way.remove(note)
                    self._compare(note)
                else:
                    self._look_at_time(note)
        except ShutDownError:
            self._ended = True  # In good order.
        except Error as failure:
            self._ended = True
            self._failure = failure

    def _tell(self, note: _Note) -> None:
        content = f"{note.what_is_moved()}\n{note.describe()}\n{note.line()}".encode()
        note.sent = torch.frombuffer(bytearray(content[:_NOTE_BYTES].ljust(_NOTE_BYTES, b"\0")), dtype=torch.uint8)
        note.received = torch.zeros(_NOTE_BYTES, dtype=torch.uint8, device="cpu")
        number = DATA_TYPE_NUMBERS[torch.uint8]
        note.since = time.monotonic()
        note.handles = [
            self._messages.send(note.peer, _TAGS[note.method], number, memory_of(note.sent)),
            self._messages.receive(note.peer, _TAGS[_OTHER[note.method]], number, memory_of(note.received)),
        ]

    def _compare(self, note: _Note) -> None:
        for handle in note.handles:
            handle.wait()
        moved, call, line = bytes(note.received.tolist()).rstrip(b"\0").decode(errors="replace").split("\n", 2)
        if moved != note.what_is_moved():
            sides = [f"rank {self._rank}: {note.describe()}, at {note.line()}", f"rank {note.peer}: {call}, at {line}"]
            if note.method == "recv":
                sides.reverse()
            raise MismatchError(
                f"{self._title}: {DISAGREEMENT} (number {note.number} between them in this "
                f"direction): {'; '.join(sides)}"
            )

    def _look_at_time(self, note: _Note) -> None:
        waited = time.monotonic() - note.since
        if waited < min(_core.stall_warning_seconds() or self._timeout, self._timeout):
            return
        text = (
            f"{self._title}: {note.describe()} (message {note.number} in this direction), at {note.line()}, waits for "
            f"{waited:.0f} s; missing: rank {note.peer}, which has not called {_OTHER[note.method]}"
        )
        if waited >= self._timeout:
            raise TimeoutError(f"{text}; timed out")
        if not note.reported:
            note.reported = True
            logging.getLogger("gyre").warning("rank %d: stall: %s", self._rank, text)


def is_message(method: str) -> bool:
    return method in _TAGS


def peer_in(arguments: tuple[Any, ...], options: dict[str, Any]) -> int:
    """Of send(tensors, rank, tag) and recv(tensors, rank, tag)."""
    if len(arguments) > 1:
        return int(arguments[1])
    return int(options.get("dst_rank", options.get("src_rank", -1)))
