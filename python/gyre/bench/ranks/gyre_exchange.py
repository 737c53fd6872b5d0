"""gyre.torch's DistributedOptimizer: one rank of the exchange benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from gyre.bench.ranks.exchange import Exchange, average, main
from gyre.bench.ranks.gradients import GivenGradients
from gyre.bench.ranks.groups import Ranks, gyre_ranks


def resident_bytes(ranks: Ranks) -> int:
    """This process's memory, including its part of shared memory. Mapped files, such as libraries, are excluded,
    because their part depends on which other processes map them. All ranks call it together, so that shared memory
    is mapped by all."""
    ranks.meet()
    fields = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    ranks.meet()
    return sum(int(fields[name].split()[0]) * 1024 for name in ("Pss_Anon", "Pss_Shmem"))


def measure(module: GivenGradients, exchange: Exchange, ranks: Ranks) -> dict[str, float]:
    import gyre.torch as hvd  # noqa: PLC0415 - after the group is joined

    plain = torch.optim.SGD(module.parameters(), 0.0)
    plain.step()  # torch loads a lot for the first one.
    before_bytes = resident_bytes(ranks)
    optimizer: Any = hvd.DistributedOptimizer(plain, module.named_parameters())

    def step(output: torch.Tensor) -> None:
        module.hand_out(output)
        optimizer.synchronize()

    def forget(set_to_none: bool) -> None:
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad(set_to_none)

    figures = {
        "none": exchange.measure(module, step, lambda: forget(True), average(ranks)),
        "zeros": exchange.measure(module, step, lambda: forget(False), average(ranks)),
    }
    return {**figures, "memory_bytes": resident_bytes(ranks) - before_bytes}


if __name__ == "__main__":
    main(lambda _: gyre_ranks(), measure)
