"""One MPI_Allreduce per gradient, in place, as Horovod does with fusion off: one rank of the exchange benchmark."""

from __future__ import annotations

import torch

from gyre.bench.ranks.exchange import Exchange, main
from gyre.bench.ranks.gradients import GivenGradients
from gyre.bench.ranks.groups import Ranks, openmpi_ranks


def measure(module: GivenGradients, exchange: Exchange, ranks: Ranks) -> dict[str, float]:
    def step(output: torch.Tensor) -> None:
        module.hand_out(output)
        for parameter in reversed(module.list):
            if parameter.grad is not None:
                ranks.allreduce(ranks.native(parameter.grad))

    # Only the sum; the peer is not charged for the division that an average needs.
    expected = ranks.size * (ranks.size + 1) / 2
    return exchange.measure_both(module, step, expected)


if __name__ == "__main__":
    main(lambda _: openmpi_ranks(), measure)
