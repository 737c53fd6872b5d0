"""The optimizer that exchanges through parameter servers."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import torch

import gyre.torch as hvd
from gyre._runtime import current
from gyre._tensors.requests import ReduceOperation
from gyre.core import _core
from gyre.errors import InvalidArgumentError, UnsupportedError
from gyre.params.job import worker_or_none
from gyre.torch._wrapping import wrap

AnyOptimizer = TypeVar("AnyOptimizer", bound=torch.optim.Optimizer)
Closure = Callable[[], Any]


class _ServerMixin(torch.optim.Optimizer):
    """What all wrapped optimizers have in common."""

    _worker: _core.ParameterWorker | None
    _parameters: list[torch.Tensor]
    consistency: str
    dropped_steps = 0  # Of this worker: they came too late (backup workers).

    def synchronize(self) -> None:
        """Waits until the gradients are averaged, if the workers' gradients are; step() calls it."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() inside does not exchange gradients: synchronize() has been called already."""
        yield

    def settle(self) -> None:
        """Makes the parameters of all workers equal, for an evaluation or a checkpoint. Collective. Does nothing if
        they are."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if "_parameters" in self.__dict__:
            raise UnsupportedError("the servers know the parameters: add groups before ParameterServerOptimizer()")
        super().add_param_group(param_group)


class _AveragedGradients(_ServerMixin):
    """Every step uses the average of all workers' gradients, which the servers compute."""

    _synchronized = False
    _skip = False

    def synchronize(self) -> None:
        for parameter in self._parameters:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = gradient.detach().contiguous()
        places = [cast("torch.Tensor", parameter.grad).data_ptr() for parameter in self._parameters]
        assert self._worker is not None
        self._worker.step(places, places, 0.0)
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

    def _synchronizing(self, closure: Closure) -> Closure:
        def closure_and_exchange() -> Any:
            loss = closure()
            self.synchronize()
            self._synchronized = False
            return loss

        return closure_and_exchange


class _SharedParameters(_ServerMixin):
    """The servers hold the parameters: what this worker's own step has changed is added there."""

    _common: list[torch.Tensor] | None = None

    def step(self, closure: Closure | None = None) -> Any:
        """The class's own step; then the change goes to the servers, and their parameters become this worker's."""
        worker, addresses = self._worker, _addresses(self._parameters)
        assert worker is not None
        if self._common is None:
            worker.initialise(addresses)
            self._note_common()
        result = super().step(closure)
        common = cast("list[torch.Tensor]", self._common)
        with torch.no_grad():
            for before, parameter in zip(common, self._parameters, strict=True):
                before.sub_(parameter)  # The servers subtract a gradient.
        accepted, _ = worker.step(_addresses(common), addresses, 1.0)
        self.dropped_steps += not accepted
        self._note_common()
        return result

    step.hooked = True  # type: ignore[attr-defined]

    def settle(self) -> None:
        if self._common is None:
            return
        assert self._worker is not None
        self._worker.sum([1.0])
        self._worker.pull(_addresses(self._parameters))
        self._note_common()

    def _note_common(self) -> None:
        with torch.no_grad():
            self._common = [parameter.detach().clone() for parameter in self._parameters]


class _LocalSteps(_ServerMixin):
    """This worker takes a number of steps alone; then the average of the workers' changes goes through an outer
    optimizer."""

    _common: list[torch.Tensor] | None = None
    _outer: torch.optim.Optimizer
    _outer_options: tuple[float, float, bool]  # Rate, momentum, Nesterov.
    _local_steps: int
    _number = 0  # Among those of the job that exchange through allreduce.
    _steps_alone = 0

    def step(self, closure: Closure | None = None) -> Any:
        """The class's own step, and the exchange whenever it is due."""
        if self._common is None:
            rate, momentum, nesterov = self._outer_options
            self._common = [parameter.detach().clone() for parameter in self._parameters]
            self._outer = torch.optim.SGD(self._common, lr=rate, momentum=momentum, nesterov=nesterov)
        result = super().step(closure)
        self._steps_alone += 1
        if self._steps_alone == self._local_steps:
            self._exchange()
        return result

    step.hooked = True  # type: ignore[attr-defined]

    def settle(self) -> None:
        if self._steps_alone > 0:
            self._exchange()

    def _exchange(self) -> None:
        self._steps_alone = 0
        common = cast("list[torch.Tensor]", self._common)
        with torch.no_grad():
            changes = [before - p for before, p in zip(common, self._parameters, strict=True)]
            if self._worker is None:
                changes = hvd.grouped_allreduce(changes, name=f"local_steps.{self._number}")
            else:
                self._worker.step(_addresses(changes), _addresses(changes), 0.0)
            for before, change in zip(common, changes, strict=True):
                before.grad = change
            self._outer.step()
            for before, parameter in zip(common, self._parameters, strict=True):
                parameter.copy_(before)


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
    backward_passes_per_step: number of backward passes that you accumulate before step().
    The other arguments are those of DistributedOptimizer. With servers or local steps they must have their default
    values (UnsupportedError), because plain dense gradients are averaged.

    Without servers (`gyre run` without --servers) "sync" gives DistributedOptimizer(…), and "local" exchanges through
    allreduce; other forms raise InvalidArgumentError.
    """
    choice = _core.parse_consistency(consistency, "consistency")
    worker = worker_or_none()
    if worker is None and choice.needs_servers:
        raise InvalidArgumentError(
            f"consistency='{consistency}' needs parameter servers: start the job with `gyre run --servers N`"
        )
    options: dict[str, Any] = {
        "compression": compression,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "num_groups": num_groups,
        "groups": groups,
        "sparse_as_dense": sparse_as_dense,
        "process_set": process_set,
    }
    if worker is None and choice.local_steps == 0:
        distributed = hvd.DistributedOptimizer(
            optimizer, named_parameters, backward_passes_per_step=backward_passes_per_step, **options
        )
        distributed.__dict__.update(consistency=consistency, dropped_steps=0, settle=lambda: None)
        return distributed
    _check_defaults(options)
    named = _checked_parameters(optimizer, backward_passes_per_step, named_parameters)
    return cast("AnyOptimizer", _wrapped(optimizer, named, choice, worker, consistency))


def _wrapped(
    optimizer: torch.optim.Optimizer,
    named: list[tuple[str, torch.Tensor]],
    choice: _core.Consistency,
    worker: _core.ParameterWorker | None,
    consistency: str,
) -> Any:
    if choice.local_steps:
        mixin: type[_ServerMixin] = _LocalSteps
    else:
        mixin = _SharedParameters if choice.servers_update else _AveragedGradients
    parameters = [parameter for _, parameter in named]
    wrapped: Any = wrap(optimizer, mixin)
    wrapped._worker, wrapped._parameters, wrapped.consistency = worker, parameters, consistency
    if choice.local_steps:
        workers = hvd.size() if worker is None else worker.size
        wrapped._local_steps, wrapped._outer_options = choice.local_steps, choice.outer_optimizer(workers)
        if worker is None:
            wrapped._number = current().next_number("local_steps")
    if worker is not None:
        worker.attach([parameter.numel() for parameter in parameters], [name for name, _ in named], choice)
    return wrapped


def _check_defaults(options: dict[str, Any]) -> None:
    defaults = inspect.signature(ParameterServerOptimizer).parameters
    changed = [name for name, value in options.items() if value != defaults[name].default]
    if changed:
        raise UnsupportedError(
            f"{changed[0]} cannot be chosen with parameter servers or local steps, which average plain dense gradients "
            "of all workers"
        )


def _addresses(tensors: Iterable[torch.Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _checked_parameters(
    optimizer: torch.optim.Optimizer, passes: int, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> list[tuple[str, torch.Tensor]]:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, _ServerMixin):
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
