"""Ranks that wait for each other end within seconds, with an error: also when a device's library has started threads of
its own, of which Gyre must know that they bring nothing. On the simulated device, with a stand-in for NCCL."""

from __future__ import annotations

import gyre.torch as hvd
import pytest
import sim_device
import torch
import torch.distributed as dist
from gyre.errors import MismatchError
from ranks_fixture import RunRanks

SIZE = 2
ENVIRONMENT = {
    "SCHEDULE": next(iter(sim_device.SCHEDULES)),
    "BACKEND": "gyre",
    "CARRIER": "delegated",
    "GYRE_DEADLOCK_SECONDS": "1",
}


def body_of_gyre_torch() -> None:
    sim_device.begin()
    hvd.init()
    ones = torch.ones(2, device=sim_device.device(hvd.rank()))
    assert hvd.allreduce(ones, op=hvd.Sum).tolist() == [SIZE] * 2
    with pytest.raises(MismatchError, match=r"deadlock: rank 0 waits for allreduce 'allreduce\.a', which needs rank 1"):
        hvd.allreduce(ones, name="ab"[hvd.rank()])


def body_of_groups_of_torchs() -> None:
    sim_device.join_group(SIZE)
    ones = torch.ones(2, device=sim_device.own_device())
    dist.all_reduce(ones)
    assert ones.tolist() == [SIZE] * 2
    groups = [dist.new_group(), dist.new_group()]
    with pytest.raises(MismatchError, match="deadlock: "):
        dist.barrier(groups[dist.get_rank()])


@pytest.mark.parametrize("body", [body_of_gyre_torch, body_of_groups_of_torchs])
def test_a_deadlock_is_an_error_while_a_library_of_a_device_has_threads(run_ranks: RunRanks, body) -> None:
    run_ranks(SIZE, body, environment=ENVIRONMENT)
