"""A call of gyre.torch whose tensors a device's own library exchanges, on its way there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gyre._devices import staging
from gyre.core import _core
from gyre.torch.handle import Handle


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all ranks have agreed on: gyre::engine::Agreement."""

    number: int
    some_have_joined: bool
    rows: list[int]


@dataclass(slots=True)
class Part:
    """One operation: what is agreed on, and what then passes it to the library, with the stream on which it is to run
    as the current one, and returns its result. `in_place`: that is the tensor which it is given."""

    request: _core.Request
    tensor: torch.Tensor
    carry_out: Callable[[Any, Agreement, torch.Tensor], torch.Tensor]
    in_place: bool = False


class Call:
    """Operations that complete together, on this rank, between the program's call and their place on a stream."""

    def __init__(self, parts: Sequence[Part], stage: Callable[[str], Handle], action: str) -> None:
        """`stage`: makes it an operation through host memory, of this name. `action` starts messages."""
        self.parts = parts
        self.action = action
        self.device = parts[0].tensor.device
        self.written = staging.current_stream(self.device, action).record_event()
        self.stage = stage
        self.handles: list[_core.Handle] = []
        self.agreements: list[Agreement] | None = None
        self.results: list[torch.Tensor] = []
        self.end: torch.Event | None = None  # Of the results, on the library's stream.
        self.staged: Handle | None = None
        self.failure: Exception | None = None
        self.is_passed_on = False

    @property
    def number(self) -> int:
        assert self.agreements is not None
        return self.agreements[-1].number

    def is_agreed_on(self) -> bool:
        """Or refused: `failure` is set then."""
        if self.agreements is not None or self.failure is not None:
            return True
        if not all(handle.done() for handle in self.handles):
            return False
        try:
            for handle in self.handles:
                handle.wait()
            self.agreements = [Agreement(*handle.take_agreement()) for handle in self.handles]
        except Exception as failure:
            self.failure = failure
        return True

    def land(self) -> None:
        """The caller's current stream waits for the results."""
        if self.staged is not None:
            self.staged.wait()
        elif self.end is not None:
            stream = torch.accelerator.current_stream(self.device)
            staging.wait_on_device(stream, self.end)
            for result in self.results:
                staging.note_use(result, stream)


class Given:
    """A call that the library is given, for gyre._devices.device_watch. It keeps no tensor alive."""

    def __init__(self, call: Call, agreed_at: float) -> None:
        self.agreed_at: float | None = agreed_at
        self._action = call.action
        self._end: torch.Event | None = None
        self._is_passed_on = False

    def note_end(self, end: torch.Event | None) -> None:
        """The library has taken it. `end`: on its stream; None if it was not the library's in the end."""
        self._end = end
        self._is_passed_on = True

    def is_completed(self) -> bool:
        return self._is_passed_on and (self._end is None or bool(self._end.query()))

    def describe(self) -> str:
        return self._action
