"""Mixed precision with exchanged gradients."""

from __future__ import annotations

from typing import Any

import torch


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler with support for DistributedOptimizer: unscale_(), and step() without it, first wait for
    the exchange, so that all ranks see the same gradients and skip the same steps. Use it like the original."""

    def __init__(self, device: str = "cpu", **options: Any) -> None:
        super().__init__(device, **options)
        self._unscaled: set[int] = set()  # The optimizers, by identity, since the last update().

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """As the original, on the reduced gradients. Collective for a DistributedOptimizer."""
        synchronize = getattr(optimizer, "synchronize", None)
        if synchronize is not None:
            synchronize()
        super().unscale_(optimizer)
        self._unscaled.add(id(optimizer))

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """As the original. Collective for a DistributedOptimizer."""
        skip = getattr(optimizer, "skip_synchronize", None)
        if skip is None:
            return super().step(optimizer, *args, **kwargs)
        if not self.is_enabled():
            return super().step(optimizer, *args, **kwargs)
        if id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        with skip():
            return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """The original's."""
        super().update(new_scale)
        self._unscaled.clear()
