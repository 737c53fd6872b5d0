"""gyre.torch's DistributedOptimizer: one rank of the step benchmark."""

from __future__ import annotations

import torch
from torch import nn

from gyre.bench.ranks.groups import gyre_ranks
from gyre.bench.ranks.step import Trained, main


def wrap(network: nn.Module, optimizer: torch.optim.Optimizer) -> Trained:
    import gyre.torch as hvd  # noqa: PLC0415 - after the group is joined

    return Trained(network, hvd.DistributedOptimizer(optimizer, network.named_parameters()))


if __name__ == "__main__":
    main(lambda _: gyre_ranks(), wrap)
