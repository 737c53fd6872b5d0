"""DistributedOptimizer(op=Adasum): every rank steps on its own gradients, and the changes are combined.

Adding the changes instead of the gradients makes the adaptive sum right for optimizers with state (momentum, Adam).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from gyre._job.compression import Compressor
from gyre._job.process_sets import ProcessSet, runtime_of
from gyre._operations import ReduceOperation
from gyre.errors import CallOrderError, InvalidArgumentError
from gyre.torch._first_step import FirstStep, Replica
from gyre.torch.asynchronous import grouped_allreduce_async


class AdasumMixin(torch.optim.Optimizer):
    """What DistributedOptimizer(op=Adasum) adds to an optimizer's class."""

    _compression: type[Compressor]
    _parameter_names: dict[torch.Tensor, str]
    _unequal_replicas: str  # See FirstStep.
    _name: str  # Of its operations, the same on all ranks.
    _has_stepped = False

    # The arguments of DistributedOptimizer, for scripts that read them.
    op: ReduceOperation
    process_set: ProcessSet
    backward_passes_per_step: int
    gradient_predivide_factor: float
    sparse_as_dense: bool

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The class's own step, and the adaptive sum of what it changed on all ranks. Collective."""
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        if not self._has_stepped:
            self._has_stepped = True
            self._compare_replicas(parameters)
        before = [parameter.detach().clone() for parameter in parameters]
        result = super().step(closure)
        changes = [p.detach() - old for p, old in zip(parameters, before, strict=True)]
        compressed = [self._compression.compress(change) for change in changes]
        wire = [change for change, _ in compressed]
        handle = grouped_allreduce_async(
            wire, op=ReduceOperation.ADASUM, name=f"{self._name}.changes", process_set=self.process_set
        )
        with torch.no_grad():
            for p, old, change, (_, context) in zip(parameters, before, handle.wait(), compressed, strict=True):
                p.copy_(old + self._compression.decompress(change, context))
        return result

    def _compare_replicas(self, parameters: list[torch.Tensor]) -> None:
        names, runtime = self._parameter_names, runtime_of(self.process_set)
        replicas = [Replica(names[parameter], parameter, parameter.grad is not None) for parameter in parameters]
        FirstStep(runtime, self._unequal_replicas).agree(f"{self._name}.first", replicas, complete=True)

    step.hooked = True  # type: ignore[attr-defined]  # The class's own step runs the step hooks; once is enough.

    def synchronize(self) -> None:
        """Does nothing: gradients are not exchanged."""

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Only recorded: step() works on the sum of all backward passes, however many there were."""
        if passes < 1:
            raise InvalidArgumentError(f"backward_passes_per_step must be at least 1, not {passes}")
        self.backward_passes_per_step = passes

    def skip_synchronize(self) -> contextlib.AbstractContextManager[None]:
        """CallOrderError: the exchange is part of the step."""
        raise CallOrderError("skip_synchronize() cannot be used with op=Adasum: the exchange is part of step()")
