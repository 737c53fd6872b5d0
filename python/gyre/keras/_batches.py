"""A gyre.data.Loader as a data set of Keras."""

from __future__ import annotations

import inspect
import operator
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import keras

from gyre.data import Batch, Loader
from gyre.errors import CallOrderError, InvalidArgumentError

#: Former passes that are still recognised: threads of TensorFlow may go on asking for one that fit() has left.
_FORMER_PASSES = 4
_NO_WORKERS = "the batches are read ahead by the loader's own threads; pass threads= to the Loader instead"


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    """The batches of a Loader for model.fit(), evaluate() and predict(), on every back end of Keras:

        model.fit(Batches(loader, lambda batch: (batch["x"], batch["y"])), epochs=10)

    `make` gets a gyre.data.Batch and returns inputs, or a tuple of inputs, targets and, if there are any, sample
    weights. A pass of Keras over this data set is an epoch of the loader, in the loader's order: it has shuffled and
    read ahead, so fit()'s `shuffle` has no effect, and there are no workers but the loader's threads. After a pass
    that Keras leaves early the next one is over the next epoch.

    InvalidArgumentError for unsuitable arguments and for results of `make` that Keras does not take.
    """

    def __init__(self, loader: Loader, make: Callable[[Batch], Any]) -> None:
        super().__init__()
        _check(loader, make)
        self._loader, self._make = loader, make
        self._lock = threading.Lock()  # TensorFlow asks on threads of its own.
        self._pass: FrameType | None = None  # The loop of Keras that asks or asked last,
        self._former: deque[FrameType] = deque(maxlen=_FORMER_PASSES)  # and those before it.
        # Places count batches from epoch 0 on.
        self._begin = 0  # Of the pass, or of the next one after a whole pass;
        self._taken = 0  # how many batches the pass has got, 0 after a whole one.
        self._batches: Iterator[Batch] | None = None  # A loop over the loader,
        self._next = 0  # and the place of its next batch.
        self._follow_loader()

    @property
    def workers(self) -> int:
        return 1  # The thread that asks.

    @workers.setter
    def workers(self, value: int) -> None:
        if value > 1:
            raise InvalidArgumentError(f"workers={value}: {_NO_WORKERS}")

    @property
    def use_multiprocessing(self) -> bool:
        return False

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: bool) -> None:
        if value:
            raise InvalidArgumentError(f"use_multiprocessing=True: {_NO_WORKERS}")

    def __len__(self) -> int:
        """Batches of an epoch on this rank."""
        return len(self._loader)

    def __getitem__(self, index: int) -> Any:
        """A loop of Keras gets its next batch. Others only look, and get the batch of that number in the pass that
        runs or comes next; each look makes the loader read ahead anew."""
        number = operator.index(index)
        if not 0 <= number < len(self):
            raise IndexError(f"there is no batch {number}: an epoch has {len(self)}")
        loop = _loop_of_keras()
        with self._lock:
            self._notice_changes()
            if loop is None:
                return self._made(self._read(self._begin + number))
            if loop is not self._pass:
                self._begin_pass(loop)
            made = self._made(self._read(self._begin + self._taken))
            self._taken += 1
            if self._taken == len(self):
                self._begin, self._taken = self._begin + self._taken, 0
            return made

    def state_dict(self) -> Any:
        """Where the run is after the last whole pass, that is, at the end of an epoch of fit(): as the loader's
        state_dict(), and for load_state_dict() of this or of the loader."""
        with self._lock:
            self._notice_changes()
            return self._state_at(self._begin)

    def load_state_dict(self, state: Any) -> None:
        """The next pass begins where `state` was taken. After a state from within an epoch, each pass reaches as far
        into the next epoch: the samples are those of the run that was not interrupted."""
        with self._lock:
            self._loader.load_state_dict(state)
            self._follow_loader()
            self._leave_pass()

    def _begin_pass(self, loop: FrameType) -> None:
        if any(loop is former for former in self._former):
            raise CallOrderError(
                "a loop over this data set went on although a later one has begun. It has one pass at a time: make a "
                "Loader and Batches for each of the two"
            )
        self._leave_pass()
        self._pass = loop
        if self._taken:
            self._begin, self._taken = (self._begin // len(self) + 1) * len(self), 0

    def _leave_pass(self) -> None:
        if self._pass is not None:
            self._former.append(self._pass)
            self._pass = None

    def _notice_changes(self) -> None:
        """The program may have called set_epoch() or load_state_dict() of the loader, or looped over it."""
        if self._place_of_loader() != self._next:
            self._follow_loader()

    def _follow_loader(self) -> None:
        """The next pass begins where the loader's next loop would."""
        epoch, step = self._loader.next_start
        self._begin, self._next = epoch * len(self) + step, self._place_of_loader()
        self._taken, self._batches = 0, None

    def _read(self, place: int) -> Batch:
        # A loop over the loader ends with an epoch.
        if self._batches is None or place != self._next or place % len(self) == 0:
            self._loader.load_state_dict(self._state_at(place))
            self._batches, self._next = iter(self._loader), place
        try:
            batch = next(self._batches)
        except Exception:
            self._batches = None
            raise
        self._next = place + 1
        return batch

    def _made(self, batch: Batch) -> Any:
        made = self._make(batch)
        if made is None or (isinstance(made, (tuple, list)) and len(made) not in (1, 2, 3)):
            what = "None" if made is None else f"a {type(made).__name__} of {len(made)}"
            raise InvalidArgumentError(
                f"make returned {what}; Keras takes inputs, (inputs, targets) or (inputs, targets, sample weights)"
            )
        return made

    def _place_of_loader(self) -> int:
        state = self._loader.state_dict()
        return int(state["epoch"] * len(self) + state["step"])

    def _state_at(self, place: int) -> Any:
        state = self._loader.state_dict()
        state["epoch"], state["step"] = divmod(place, len(self))
        return state


def _check(loader: Any, make: Any) -> None:
    if not isinstance(loader, Loader):
        raise InvalidArgumentError(f"Batches needs a gyre.data.Loader, not {type(loader).__name__}")
    if not callable(make):
        raise InvalidArgumentError(
            f"make={make!r} is not a function; pass one that makes inputs and targets of a batch: "
            'lambda batch: (batch["x"], batch["y"])'
        )
    if loader.output != "numpy" and keras.backend.backend() != "torch":
        raise InvalidArgumentError(
            f"the loader's batches are of {loader.output}, and Keras computes with {keras.backend.backend()}: pass "
            'output="numpy" to the Loader'
        )


def _loop_of_keras() -> FrameType | None:
    """The loop that asks for batches to train or evaluate on: the innermost generator of Keras's among the callers.
    None for those that only look at a batch: Keras itself, to learn the types or to build a model, and the program."""
    found = None
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("keras."):
            if frame.f_code.co_name == "_symbolic_build":
                return None
            if found is None and frame.f_code.co_flags & inspect.CO_GENERATOR:
                found = frame
        frame = frame.f_back
    return found
