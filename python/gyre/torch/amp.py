"""Mixed precision with gradients that are exchanged."""

from __future__ import annotations

from typing import Any

import torch


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler that knows of DistributedOptimizer: unscale_(), and step() without it, first wait for the
    exchange, so that all ranks see the same gradients and skip the same steps. Use it as the original."""

    def __init__(self, device: str = "cpu", **options: Any) -> None:
        super().__init__(device, **options)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """The original's, of the reduced gradients. Collective for a DistributedOptimizer."""
        synchronize = getattr(optimizer, "synchronize", None)
        if synchronize is not None:
            synchronize()
        super().unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """The original's. Collective for a DistributedOptimizer."""
        skip = getattr(optimizer, "skip_synchronize", None)
        if skip is None:
            return super().step(optimizer, *args, **kwargs)
        state = self._per_optimizer_states[id(optimizer)]
        if self.is_enabled() and not state["found_inf_per_device"]:
            self.unscale_(optimizer)
        elif not self.is_enabled():
            return super().step(optimizer, *args, **kwargs)
        with skip():
            return super().step(optimizer, *args, **kwargs)
