"""DistributedOptimizer(op=Adasum): every rank steps on its own gradients, and what the steps changed is combined.

Adding the changes instead of the gradients makes the adaptive sum right for optimizers with state (momentum, Adam).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from gyre._tensors.requests import ReduceOperation
from gyre.errors import CallOrderError, InvalidArgumentError
from gyre.torch._first_step import FirstStep, Replica
from gyre.torch.asynchronous import grouped_allreduce_async
from gyre.torch.compression import Compressor
from gyre.torch.process_sets import ProcessSet


class AdasumMixin(torch.optim.Optimizer):
    """What DistributedOptimizer(op=Adasum) adds to an optimizer's class."""

    _compression: type[Compressor]
    _parameter_names: dict[torch.Tensor, str]
    _first_step: FirstStep | None  # Until it is over.
    _number: int  # Of this optimizer, the same on all ranks.

    # What DistributedOptimizer was given, for scripts that look.
    op: ReduceOperation
    process_set: ProcessSet
    backward_passes_per_step: int
    gradient_predivide_factor: float
    sparse_as_dense: bool

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The class's own step, and the adaptive sum of what it changed on all ranks. Collective."""
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        if self._first_step is not None:
            names = self._parameter_names
            replicas = [Replica(names[parameter], parameter, parameter.grad is not None) for parameter in parameters]
            first_step, self._first_step = self._first_step, None
            first_step.agree(f"optimizer.{self._number}.complete", replicas, complete=True)
        before = [parameter.detach().clone() for parameter in parameters]
        result = super().step(closure)
        changes = [p.detach() - old for p, old in zip(parameters, before, strict=True)]
        compressed = [self._compression.compress(change) for change in changes]
        wire = [change for change, _ in compressed]
        handle = grouped_allreduce_async(wire, op=ReduceOperation.ADASUM, process_set=self.process_set)
        with torch.no_grad():
            for p, old, change, (_, context) in zip(parameters, before, handle.wait(), compressed, strict=True):
                p.copy_(old + self._compression.decompress(change, context))
        return result

    step.hooked = True  # type: ignore[attr-defined]  # The class's own step runs the step hooks; once is enough.

    def synchronize(self) -> None:
        """Does nothing: gradients are not exchanged."""

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Noted only: however many backward passes there were, step() works on their sum."""
        if passes < 1:
            raise InvalidArgumentError(f"backward_passes_per_step must be at least 1, not {passes}")
        self.backward_passes_per_step = passes

    def skip_synchronize(self) -> contextlib.AbstractContextManager[None]:
        """CallOrderError: the exchange is part of the step."""
        raise CallOrderError("skip_synchronize() makes no sense with op=Adasum: the exchange is part of step()")
