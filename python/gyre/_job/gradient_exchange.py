"""The exchange of gradients whose number, types and shapes are the same in every step: one engine plan.

For interfaces whose framework calls back once per step, with all gradients (Keras, a tf.function). gyre.torch has its
own, which autograd's hooks feed.
"""

from __future__ import annotations

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


class GradientExchange:
    """The gradients of one optimizer or tape, on this rank. One step at a time."""

    def __init__(self, runtime: Runtime, options: ExchangeOptions, kind: str = "optimizer") -> None:
        """`kind`: of its name. Every rank makes its exchanges in the same order."""
        number = runtime.next_number(kind)
        self.runtime = runtime
        self.options = options
        self.name = f"{kind}.{number}"
        self.place = (runtime.set_id, number)  # Orders the exchanges of a job alike on all ranks.
        self.failure: Error | None = None  # What the last step failed with; frameworks pass on only its text.
        self.before_join: Callable[[], None] | None = None  # Lays the gradients out, if this rank never had any.
        self._gradients: tuple[Gradient, ...] = ()
        self._plan: _core.Plan | None = None
        self._layouts = 0
        self._ended = False
        runtime.add_exchange(self)

    def lay_out(self, gradients: Sequence[Gradient]) -> None:
        """The gradients of the steps from now on, in the order in which they are expected. Collective, unless they are
        those of the last call: MismatchError, on every rank, if the ranks' differ."""
        self._check_in_use()
        wanted = tuple(gradients)
        if self._plan is not None and wanted == self._gradients:
            return
        self._layouts += 1
        reduction = self.options.reduction
        options = _core.PlanOptions(
            name=self.name if self._layouts == 1 else f"{self.name}.{self._layouts}",
            operation=reduction.operation,
            prescale=reduction.prescale,
            postscale=reduction.postscale,
            wire=self.options.wire,
        )
        tensors = [(name, number, list(shape), group) for name, number, shape, group in wanted]
        self._plan = self.runtime.core.make_plan(tensors, options)
        self._gradients = wanted

    @property
    def plan(self) -> _core.Plan:
        """After lay_out()."""
        self._check_in_use()
        assert self._plan is not None
        return self._plan

    @property
    def gradients(self) -> tuple[Gradient, ...]:
        """What lay_out() was called with."""
        return self._gradients

    def run(self, contributions: Sequence[tuple[int, int]]) -> None:
        """One step: afterwards memory(i) holds the reduced gradient i, until the next step. Waits for the other ranks.
        Collective. `contributions`: (address, bytes) of each, contiguous. Raises what made the exchange fail."""
        try:
            plan = self.plan
            for index, (address, size_bytes) in enumerate(contributions):
                plan.contribute(index, address, size_bytes)
            plan.finish_step()
        except Error as error:
            self.failure = error
            raise

    def memory(self, index: int) -> _core.Memory:
        """This rank's place of gradient `index` in the arena."""
        return self.plan.memory(index)

    def _check_in_use(self) -> None:
        if self._ended:
            raise ShutDownError(
                f"the job that {self.name} was made for has been shut down, or its process set removed: make the "
                "DistributedOptimizer and what was traced with it anew"
            )

    # What gyre._runtime and gyre._job.joining ask of every exchange.

    def prepare_join(self) -> None:
        """This rank has no more steps: the engine takes part in those of the others, which requires a plan."""
        if self._plan is None and not self._ended and self.before_join is not None:
            self.before_join()

    def retire_if_it_has(self, parameters: AbstractSet[int]) -> None:
        """Nothing: these are not torch's parameters."""

    def end_with_runtime(self) -> None:
        """The runtime has been shut down."""
        self._ended = True
        self._plan = None
