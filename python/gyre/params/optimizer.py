"""The optimizer that exchanges through parameter servers."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import torch

import gyre.torch as hvd
from gyre._operations import ReduceOperation
from gyre._runtime import current
from gyre.core import _core
from gyre.errors import InvalidArgumentError, UnsupportedError
from gyre.params._memory import all_shared, shared
from gyre.params._mixin import Closure, ServerMixin
from gyre.params._served import ServedParameters, options_of, tables_of
from gyre.params.job import held_parameters, worker_or_none
from gyre.torch._wrapping import wrap

AnyOptimizer = TypeVar("AnyOptimizer", bound=torch.optim.Optimizer)

_ROUNDS_KEY = "gyre_local_steps"  # Of the outer optimizer in a state_dict().


class _AveragedGradients(ServerMixin):
    """Every step uses the average of all workers' gradients, which the servers compute."""

    _synchronized = False
    _skip = False

    def synchronize(self) -> None:
        assert self._worker is not None
        present = [parameter.requires_grad and parameter.grad is not None for parameter in self._parameters]
        gradients = []
        for (name, parameter), has_gradient in zip(self._named, present, strict=True):
            gradient = parameter.grad if has_gradient else torch.empty_like(parameter, requires_grad=False)
            assert gradient is not None
            if gradient.layout != torch.strided:
                raise UnsupportedError(f"the gradient of {name} is sparse: parameter servers average dense gradients")
            gradients.append(gradient.detach().contiguous())
        found = self._worker.average(all_shared(gradients), present)
        for parameter, gradient, anybody_has_it in zip(self._parameters, gradients, found, strict=True):
            parameter.grad = gradient if anybody_has_it else None
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        self._skip = True
        try:
            yield
        finally:
            self._skip = False

    def step(self, closure: Closure | None = None) -> Any:
        """synchronize(), unless it has been called since the last step, and the class's own step."""
        if closure is not None:
            return super().step(self._synchronizing(closure))
        if not self._synchronized and not self._skip:
            self.synchronize()
        self._synchronized = False
        return super().step()

    step.hooked = True  # type: ignore[attr-defined]  # The class's own step runs the step hooks; once is enough.

    def settle(self) -> None:
        assert self._worker is not None
        self._worker.meet()  # Refuses where the workers have taken different numbers of steps.

    def _synchronizing(self, closure: Closure) -> Closure:
        def closure_and_exchange() -> Any:
            loss = closure()
            self.synchronize()
            self._synchronized = False
            return loss

        return closure_and_exchange


class _TooLateError(Exception):
    """Ends an optimizer's step whose gradients are dropped."""

    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.loss = loss


class _SharedParameters(ServerMixin):
    """The servers hold the parameters: what this worker's own step has changed is added there."""

    @property
    def dropped_steps(self) -> int:  # type: ignore[override]
        assert self._worker is not None
        return self._worker.dropped_steps

    def step(self, closure: Closure | None = None) -> Any:
        """The class's own step; then the change goes to the servers, and their parameters become this worker's. A step
        that comes too late is left out."""
        worker = self._worker
        assert worker is not None
        worker.begin(all_shared(self._parameters))
        if closure is None:
            if not worker.begin_step(all_shared(self._parameters)):
                return None
            result = super().step()
        else:
            try:
                result = super().step(self._beginning_after(closure))
            except _TooLateError as late:
                return late.loss
        worker.finish_step(all_shared(self._parameters))
        return result

    step.hooked = True  # type: ignore[attr-defined]

    def settle(self) -> None:
        assert self._worker is not None
        self._worker.settle(all_shared(self._parameters))

    def _beginning_after(self, closure: Closure) -> Closure:
        """The closure, whose first call computes the gradients of the step."""
        begun = False

        def closure_and_beginning() -> Any:
            nonlocal begun
            loss = closure()
            assert self._worker is not None
            if not begun and not self._worker.begin_step(all_shared(self._parameters)):
                raise _TooLateError(loss)
            begun = True
            return loss

        return closure_and_beginning


class _LocalSteps(ServerMixin):
    """This worker takes a number of steps alone; then the average of the workers' changes goes through an outer
    optimizer."""

    _rounds: _core.LocalRounds
    _has_begun = False
    _number = 0  # Among those of the job that exchange through allreduce.

    def step(self, closure: Closure | None = None) -> Any:
        """The class's own step, and the exchange whenever it is due."""
        self._begin()
        self._rounds.check(all_shared(self._parameters))  # Their types, too.
        result = super().step(closure)
        if self._rounds.end_step([parameter.grad is not None for parameter in self._parameters]):
            self._exchange(settles=False)
        return result

    step.hooked = True  # type: ignore[attr-defined]

    def settle(self) -> None:
        self._begin()
        while not self._exchange(settles=True):  # Others have steps left.
            pass

    def state_dict(self) -> dict[str, Any]:
        """The class's own, and the outer optimizer's."""
        state = super().state_dict()
        if self._rounds.slots:
            slots = []
            for slot in range(self._rounds.slots):
                slots.append([torch.empty_like(parameter, requires_grad=False) for parameter in self._parameters])
                self._rounds.save_slot(slot, all_shared(slots[-1]))
            state[_ROUNDS_KEY] = {"steps": self._rounds.outer_steps, "slots": slots}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The program loads the parameters by itself, before the next step."""
        rounds = state_dict.get(_ROUNDS_KEY, {"steps": 0, "slots": []})
        super().load_state_dict({key: value for key, value in state_dict.items() if key != _ROUNDS_KEY})
        if rounds["slots"] and len(rounds["slots"]) != self._rounds.slots:
            raise InvalidArgumentError(f"the state is not one of consistency='{self.consistency}'")
        for slot, tensors in enumerate(rounds["slots"]):
            self._rounds.restore_slot(slot, all_shared(tensors))
        self._rounds.outer_steps = rounds["steps"]
        self._has_begun = False

    def _begin(self) -> None:
        if not self._has_begun:
            self._rounds.begin(all_shared(self._parameters))
            self._has_begun = True

    def _exchange(self, settles: bool) -> bool:
        """Whether all workers settle."""
        changes = [torch.empty_like(parameter, requires_grad=False) for parameter in self._parameters]
        notes = torch.empty(self._rounds.notes)
        self._rounds.give(all_shared(self._parameters), all_shared(changes), shared(notes), settles)
        if self._worker is None:
            *changes, notes = hvd.grouped_allreduce([*changes, notes], name=f"local_steps.{self._number}")
        else:
            self._worker.average(all_shared([*changes, notes]), [True] * (len(changes) + 1))
        return self._rounds.take(all_shared(changes), shared(notes), all_shared(self._parameters))


def ParameterServerOptimizer(  # noqa: N802 - after DistributedOptimizer
    optimizer: AnyOptimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[hvd.Compressor] = hvd.Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOperation = hvd.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: hvd.ProcessSet = hvd.global_process_set,
    consistency: str = "sync",
    on: str = "workers",
    sparse_parameters: Iterable[torch.Tensor | torch.nn.Module] = (),
) -> AnyOptimizer:
    """`optimizer`, which trains together with the other workers through the job's parameter servers.

    The result is an instance of the optimizer's own class and shares its parameter groups and state; use it instead of
    the original, from one thread. Collective: every worker wraps the same parameters in the same order. One for each
    process. Parameters must be contiguous float32 tensors on the CPU.
    consistency:
      "sync": every step uses the average of all workers' gradients, as DistributedOptimizer does.
      "sync:continue": the same, but if a worker dies, the others go on without it.
      "backup:N": a step does not wait for the N slowest workers; their late steps are dropped (`dropped_steps`).
      "async": each worker's step changes the servers' parameters as soon as it arrives.
      "bounded:S": the same, but no worker is more than S steps ahead of the slowest.
      "local:K": K steps alone, then the parameters are averaged; "local:K:bmuf" adds block momentum, "local:K:nesterov"
        Nesterov momentum (DiLoCo).
    With "sync" and "sync:continue" the servers average the gradients, and each worker's optimizer steps with the
    average. With "backup", "async" and "bounded" the servers hold the parameters, worker 0's at first: each worker's
    optimizer steps alone, and what it has changed is added there, so its state (momentum) is that worker's own. Call
    `optimizer.settle()` on all workers before an evaluation or a checkpoint: it makes their parameters equal.
    on: where the optimizer steps. "servers": `optimizer` (torch.optim's SGD, RMSprop, Adagrad, Adam or AdamW) says
      which one the servers have, and its groups' options are read in each step, so schedulers work. The job has one
      state, which state_dict() fetches. synchronize() does nothing; clipping applies to this worker's gradient.
    sparse_parameters: with on="servers", weights (or modules) of nn.Embedding(sparse=True): only the rows that steps
      touch travel. With Adagrad, or SGD without momentum, without weight decay.
    backward_passes_per_step: number of backward passes that you accumulate before step().
    The other arguments are those of DistributedOptimizer. With servers or local steps they must have their default
    values (UnsupportedError), because plain dense gradients are averaged.

    Without servers (`gyre run` without --servers) "sync" gives DistributedOptimizer(…), also with on="servers", and
    "local" exchanges through allreduce; other forms raise InvalidArgumentError.
    """
    choice = _core.parse_consistency(consistency, "consistency")
    worker = worker_or_none()
    sparse = list(sparse_parameters)
    _check_place(on, sparse, choice, consistency)
    if worker is None and choice.needs_servers:
        raise InvalidArgumentError(
            f"consistency='{consistency}' needs parameter servers: start the job with `gyre run --servers N`"
        )
    options: dict[str, Any] = {"compression": compression, "op": op, "num_groups": num_groups, "groups": groups}
    options |= {"gradient_predivide_factor": gradient_predivide_factor, "sparse_as_dense": sparse_as_dense}
    options["process_set"] = process_set
    if worker is None and choice.local_steps == 0:
        distributed = hvd.DistributedOptimizer(
            optimizer, named_parameters, backward_passes_per_step=backward_passes_per_step, **options
        )
        distributed.__dict__.update(consistency=consistency, dropped_steps=0, settle=lambda: None)
        return distributed
    _check_defaults(options)
    named = _checked_parameters(optimizer, backward_passes_per_step, named_parameters)
    if on == "servers":
        assert worker is not None
        return cast("AnyOptimizer", _served(optimizer, named, sparse, choice, worker, consistency))
    return cast("AnyOptimizer", _wrapped(optimizer, named, choice, worker, consistency))


def _check_place(
    on: str, sparse: list[torch.Tensor | torch.nn.Module], choice: _core.Consistency, consistency: str
) -> None:
    if on not in ("workers", "servers"):
        raise InvalidArgumentError(f"on='{on}': the optimizer steps on 'workers' or on 'servers'")
    if on == "servers" and choice.local_steps:
        raise InvalidArgumentError(f"consistency='{consistency}' is steps that workers take alone, not on='servers'")
    if on == "workers" and sparse:
        raise InvalidArgumentError("sparse_parameters needs on='servers', whose optimizer steps row by row")


def _served(
    optimizer: torch.optim.Optimizer,
    named: list[tuple[str, torch.Tensor]],
    sparse: list[torch.Tensor | torch.nn.Module],
    choice: _core.Consistency,
    worker: _core.ParameterWorker,
    consistency: str,
) -> ServedParameters:
    dense, tables = tables_of(named, sparse)
    options_of(type(optimizer), optimizer.param_groups)  # Errors before anything is sent.
    wrapped: ServedParameters = wrap(optimizer, ServedParameters)
    wrapped.consistency = consistency
    wrapped.attach(worker, choice, dense, tables)
    held_parameters([parameter for _, parameter in named], wrapped.begin)
    return wrapped


def _wrapped(
    optimizer: torch.optim.Optimizer,
    named: list[tuple[str, torch.Tensor]],
    choice: _core.Consistency,
    worker: _core.ParameterWorker | None,
    consistency: str,
) -> Any:
    if choice.local_steps:
        mixin: type[ServerMixin] = _LocalSteps
    else:
        mixin = _SharedParameters if choice.servers_update else _AveragedGradients
    wrapped: Any = wrap(optimizer, mixin)
    wrapped._worker, wrapped._named, wrapped.consistency = worker, named, consistency
    counts = [parameter.numel() for _, parameter in named]
    names = [name for name, _ in named]
    if choice.local_steps:
        wrapped._rounds = choice.local_rounds(hvd.size() if worker is None else worker.size, counts, names)
        if worker is None:
            wrapped._number = current().next_number("local_steps")
        else:
            counts, names = [*counts, wrapped._rounds.notes], [*names, "who has steps left"]
    if worker is not None:
        worker.attach(counts, names, choice)
        if choice.servers_update:
            parameters, core = wrapped._parameters, worker
            held_parameters(parameters, lambda: core.begin(all_shared(parameters)))
    return wrapped


def _check_defaults(options: dict[str, Any]) -> None:
    defaults = inspect.signature(ParameterServerOptimizer).parameters
    changed = [name for name, value in options.items() if value != defaults[name].default]
    if changed:
        raise UnsupportedError(
            f"{changed[0]} cannot be chosen with parameter servers or local steps, which average plain dense gradients "
            "of all workers"
        )


def _checked_parameters(
    optimizer: torch.optim.Optimizer, passes: int, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> list[tuple[str, torch.Tensor]]:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, ServerMixin):
        raise InvalidArgumentError("the optimizer is already a ParameterServerOptimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UnsupportedError("LBFGS evaluates the model several times a step: use gyre.torch.DistributedOptimizer")
    if passes < 1:
        raise InvalidArgumentError(f"backward_passes_per_step must be at least 1, not {passes}")
    names = {id(parameter): name for name, parameter in named_parameters or ()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if names and any(id(parameter) not in names for parameter in parameters):
        raise InvalidArgumentError("named_parameters does not name all of the optimizer's parameters")
    named = [(names.get(id(one), f"parameter {number}"), one) for number, one in enumerate(parameters)]
    for name, parameter in named:
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu" or not parameter.is_contiguous():
            raise UnsupportedError(
                f"{name} is of type {parameter.dtype} on {parameter.device}; parameter servers take contiguous float32 "
                "tensors on the CPU"
            )
    return named
