"""torch's DistributedDataParallel over gloo: one rank of the step benchmark."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gyre.bench.ranks.groups import gloo_ranks
from gyre.bench.ranks.step import Trained, main


def wrap(network: nn.Module, optimizer: torch.optim.Optimizer) -> Trained:
    return Trained(DistributedDataParallel(network), optimizer)


if __name__ == "__main__":
    main(gloo_ranks, wrap)
