"""The exchange of gradients whose number, types and shapes are the same in every step: one engine plan.

For interfaces whose framework calls back once per step, with all gradients (Keras, a tf.function). gyre.torch has its
own, which autograd's hooks feed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from gyre._operations import Reduction
from gyre._runtime import Runtime
from gyre.core import _core
from gyre.errors import Error, ShutDownError

NO_GROUP = -1


class Gradient(NamedTuple):
    """One tensor of the plan. `name` agrees between ranks; `group`: see _core.Runtime.make_plan."""

    name: str
    type_number: int
    shape: tuple[int, ...]
    group: int = NO_GROUP


@dataclass(frozen=True)
class ExchangeOptions:
    """`wire`: the type in which float32 leaves the host, a name of gyre/collectives/data_type.h."""

    reduction: Reduction
    wire: str = "native"


class Layout:
    """One set of gradients of an exchange, with its plan. Traced functions refer to theirs. One step at a time."""

    def __init__(self, plan: _core.Plan, gradients: Sequence[Gradient]) -> None:
        self._plan: _core.Plan | None = plan
        self._gradients = tuple(gradients)
        self._number: int | None = None
        self._failure: Error | None = None

    def run(self, contributions: Sequence[tuple[int, int]]) -> None:
        """One step: afterwards memory(i) holds the reduced gradient i, until the next step. Waits for the other ranks.
        Collective. `contributions`: (address, bytes) of each, contiguous. Raises what made the exchange fail."""
        try:
            plan = self._plan_in_use()
            for index, (address, size_bytes) in enumerate(contributions):
                plan.contribute(index, address, size_bytes)
        except Error as error:
            self._failure = error
            raise
        self.finish()

    def finish(self) -> None:
        """Ends a step whose contributions have been made."""
        try:
            self._plan_in_use().finish_step()
        except Error as error:
            self._failure = error
            raise

    def memory(self, index: int) -> _core.Memory:
        """This rank's place of gradient `index` in the arena."""
        return self._plan_in_use().memory(index)

    @property
    def number(self) -> int:
        """Of the plan, for TensorFlow's ops: see python/gyre/_tensorflow/plan_functions.h."""
        if self._number is None:
            self._number = self._plan_in_use().lend([gradient.shape for gradient in self._gradients])
        return self._number

    def raise_failure(self) -> None:
        """Raises what the last step has failed with, in run() or in TensorFlow's ops, if anything: frameworks pass on
        only its text."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._number is not None:
            _core.raise_failure_of_plan(self._number)

    def end(self) -> None:
        """Steps raise ShutDownError from now on."""
        self._plan = None
        if self._number is not None:
            _core.take_back_plan(self._number)
            self._number = None

    def _plan_in_use(self) -> _core.Plan:
        if self._plan is None:
            raise ShutDownError(
                "the job that these gradients are exchanged in has been shut down, or its process set removed: make "
                "the DistributedOptimizer and what was traced with it anew"
            )
        return self._plan


class GradientExchange:
    """The gradients of one optimizer or tape, on this rank."""

    def __init__(self, runtime: Runtime, options: ExchangeOptions, kind: str = "optimizer") -> None:
        """`kind`: of its name. Every rank makes its exchanges in the same order."""
        number = runtime.next_number(kind)
        self.runtime = runtime
        self.options = options
        self.name = f"{kind}.{number}"
        self.place = (runtime.set_id, number)  # Orders the exchanges of a job alike on all ranks.
        self.before_join: Callable[[], None] | None = None  # Lays the gradients out, if this rank never had any.
        self._layouts: dict[tuple[Gradient, ...], Layout] = {}
        self._ended = False
        runtime.add_exchange(self)
        weakref.finalize(self, _end, self._layouts)

    def lay_out(self, gradients: Sequence[Gradient]) -> Layout:
        """For the gradients of a step, in the order in which they are expected. Collective, unless there has been a
        step with the same ones: MismatchError, on every rank, if the ranks' differ."""
        if self._ended:
            raise ShutDownError(f"the job of {self.name} has been shut down: make the DistributedOptimizer anew")
        wanted = tuple(gradients)
        if wanted not in self._layouts:
            reduction, earlier = self.options.reduction, len(self._layouts)
            options = _core.PlanOptions(
                name=f"{self.name}.{earlier + 1}" if earlier else self.name,
                operation=reduction.operation,
                prescale=reduction.prescale,
                postscale=reduction.postscale,
                wire=self.options.wire,
            )
            tensors = [(name, number, list(shape), group) for name, number, shape, group in wanted]
            self._layouts[wanted] = Layout(self.runtime.core.make_plan(tensors, options), wanted)
        return self._layouts[wanted]

    def raise_failure(self) -> None:
        """See Layout."""
        for layout in self._layouts.values():
            layout.raise_failure()

    # What gyre._runtime and gyre._job.joining ask of every exchange.

    def prepare_join(self) -> None:
        """This rank has no more steps: the engine takes part in those of the others, which requires a plan."""
        if not self._layouts and not self._ended and self.before_join is not None:
            self.before_join()

    def retire_if_it_has(self, parameters: AbstractSet[int]) -> None:
        """Nothing: these are not torch's parameters."""

    def end_with_runtime(self) -> None:
        """The runtime has been shut down."""
        self._ended = True
        _end(self._layouts)


def _end(layouts: dict[tuple[Gradient, ...], Layout]) -> None:
    for layout in layouts.values():
        layout.end()
