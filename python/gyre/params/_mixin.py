"""What all optimizers that exchange through parameter servers have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gyre.core import _core
from gyre.errors import UnsupportedError

Closure = Callable[[], Any]


class ServerMixin(torch.optim.Optimizer):
    """A wrapped optimizer."""

    _worker: _core.ParameterWorker | None
    _named: list[tuple[str, torch.Tensor]]
    consistency: str
    dropped_steps = 0  # Of this worker: they came too late (backup workers).

    @property
    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for _, parameter in self._named]

    def synchronize(self) -> None:
        """Waits until the gradients are averaged, if the workers' gradients are; step() calls it."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() inside does not exchange gradients: synchronize() has been called already."""
        yield

    def settle(self) -> None:
        """Makes the parameters of all workers equal, for an evaluation or a checkpoint: see the guide. Collective."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if "_named" in self.__dict__:
            raise UnsupportedError("the servers know the parameters: add groups before ParameterServerOptimizer()")
        super().add_param_group(param_group)
