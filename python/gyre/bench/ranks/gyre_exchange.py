"""gyre.torch's DistributedOptimizer: one rank of the exchange benchmark."""

from __future__ import annotations

from typing import Any

import torch

from gyre.bench.ranks.exchange import Exchange, average, main
from gyre.bench.ranks.gradients import GivenGradients
from gyre.bench.ranks.groups import Ranks, gyre_ranks


def measure(module: GivenGradients, exchange: Exchange, ranks: Ranks) -> dict[str, float]:
    import gyre.torch as hvd  # noqa: PLC0415 - after the group is joined

    optimizer: Any = hvd.DistributedOptimizer(torch.optim.SGD(module.parameters(), 0.0), module.named_parameters())

    def step(output: torch.Tensor) -> None:
        module.hand_out(output)
        optimizer.synchronize()

    def forget(set_to_none: bool) -> None:
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad(set_to_none)

    # As an optimizer's owner chooses: a new gradient each step, or the old one's memory, filled with zeros.
    return {
        "none": exchange.measure(module, step, lambda: forget(True), average(ranks)),
        "zeros": exchange.measure(module, step, lambda: forget(False), average(ranks)),
    }


if __name__ == "__main__":
    main(lambda _: gyre_ranks(), measure)
