"""torch's DistributedDataParallel over gloo: one rank of the exchange benchmark."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from gyre.bench.ranks.exchange import Exchange, average, main
from gyre.bench.ranks.gradients import GivenGradients
from gyre.bench.ranks.groups import Ranks, gloo_ranks, leave


def measure(module: GivenGradients, exchange: Exchange, ranks: Ranks) -> dict[str, float]:
    wrapped = DistributedDataParallel(module)

    # backward returns when the buckets are averaged.
    return exchange.measure_both(wrapped, module.hand_out, average(ranks))


if __name__ == "__main__":
    main(gloo_ranks, measure)
    leave()
