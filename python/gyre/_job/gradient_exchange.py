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

from gyre._job import arrays
from gyre._operations import Reduction
from gyre._runtime import Runtime
from gyre.core import _core
from gyre.errors import Error, MismatchError, ShutDownError

NO_GROUP = -1

# Of a layout: the gradients, and which of the variables have one.
_Key = tuple[tuple["Gradient", ...], tuple[bool, ...]]


class Source(NamedTuple):
    """A variable that a step may compute a gradient of. `path`: as its user knows it."""

    path: str
    has_gradient: bool


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
        self._layouts: dict[_Key, Layout] = {}
        self._agreed: set[tuple[bool, ...]] = set()  # By agree_on().
        self._ended = False
        self._paths_agree = False  # All ranks call the variables alike, as far as is known.
        runtime.add_exchange(self)
        weakref.finalize(self, _end, self._layouts)

    def lay_out(self, gradients: Sequence[Gradient], sources: Sequence[Source] = ()) -> Layout:
        """For the gradients of a step, in the order in which they are expected. Collective, unless there has been a
        step with the same ones: MismatchError, on every rank, if the ranks' differ. `sources`: what the step has
        gradients of, and what it could have had them of, in an order that is the same on all ranks."""
        self._check_in_use()
        wanted = tuple(gradients)
        key = wanted, tuple(source.has_gradient for source in sources)
        if key not in self._layouts:
            reduction, earlier = self.options.reduction, len(self._layouts)
            name = f"{self.name}.{earlier + 1}" if earlier else self.name
            self._check_sources(name, sources, first=not earlier)
            options = _core.PlanOptions(
                name=name,
                operation=reduction.operation,
                prescale=reduction.prescale,
                postscale=reduction.postscale,
                wire=self.options.wire,
            )
            tensors = [(name, number, list(shape), group) for name, number, shape, group in wanted]
            self._layouts[key] = Layout(self.runtime.core.make_plan(tensors, options), wanted)
        return self._layouts[key]

    def agree_on(self, sources: Sequence[Source]) -> None:
        """What lay_out() does about `sources`, for gradients that are reduced without a layout."""
        self._check_in_use()
        key = tuple(source.has_gradient for source in sources)
        if key not in self._agreed:
            self._check_sources(f"{self.name}.{len(self._agreed) + 1}", sources, first=not self._agreed)
            self._agreed.add(key)

    def _check_in_use(self) -> None:
        if self._ended:
            raise ShutDownError(f"the job of {self.name} has been shut down: make the DistributedOptimizer anew")

    def _check_sources(self, layout: str, sources: Sequence[Source], first: bool) -> None:
        """MismatchError, on every rank, if only some ranks have a gradient of a variable. Where the others go on with
        the gradients of an earlier step, a deadlock is found, and named after what is missing here."""
        missing = [index for index, source in enumerate(sources) if not source.has_gradient]
        name = f"the gradients of {layout}"
        if missing and not first:
            names = [sources[index].path if self._paths_agree else f"variable {index}" for index in missing]
            name += f", without that of {_listed(names)}"
        own = "\n".join(f"{int(source.has_gradient)}{source.path}" for source in sources)
        everybodys = [
            content.decode().splitlines() for content in arrays.gather_bytes(self.runtime, own.encode(), name)
        ]
        if any(len(lines) != len(sources) for lines in everybodys):
            return  # Other networks: the layouts differ.
        self._paths_agree = all([line[1:] for line in lines] == [one.path for one in sources] for lines in everybodys)
        for index, source in enumerate(sources):
            having = [rank for rank, lines in enumerate(everybodys) if lines[index][0] == "1"]
            lacking = [rank for rank in range(len(everybodys)) if rank not in having]
            if having and lacking:
                others = sum(len({lines[other][0] for lines in everybodys}) > 1 for other in range(len(sources))) - 1
                raise MismatchError(
                    f"'{source.path}'{f' (and {others} more)' if others else ''} has a gradient on "
                    f"{_named(having)}, and none on {_named(lacking)}: the loss there does not depend on it. Let it "
                    "depend on the same variables on all ranks (adding 0.0 times their sum is enough), or keep these "
                    "gradients on their rank: register_local_var() of a DistributedOptimizer, register_local_source() "
                    "of a tape"
                )

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


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _end(layouts: dict[_Key, Layout]) -> None:
    for layout in layouts.values():
        layout.end()
