"""gyre.torch on a device whose library hangs: after all ranks have made a call, the cause is the device or a rank that
has died meanwhile, and every rank must end with it. On the simulated device, with a stand-in for NCCL."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import gyre.torch as hvd
import pytest
import sim_device
import torch
from gyre.errors import Error
from gyre.torch._delegate import Delegate
from gyre.torch._delegated_call import Call
from ranks_fixture import RunRanks
from sim_device import said

SIZE = 3
PROMISED_S = 10
ENVIRONMENT = {"SCHEDULE": next(iter(sim_device.SCHEDULES)), "CARRIER": "delegated"}


def own_device() -> torch.device:
    return sim_device.device(hvd.rank())


def join() -> None:
    sim_device.begin()
    hvd.init()
    hvd.allreduce(torch.ones(2, device=own_device())).cpu()


def failure_of_a_call() -> Error:
    with pytest.raises(Error) as caught:
        hvd.allreduce(torch.ones(3, device=own_device()), name="the next one")
    return caught.value


def leave_together() -> None:
    print(f"done on rank {hvd.rank()}", flush=True)
    for rank in range(SIZE):
        said(f"done on rank {rank}")  # A rank that has gone would be the failure of those that look later.
    os._exit(0)  # The device hangs still.


def body_on_a_device_that_hangs() -> None:
    join()
    if hvd.rank() == 1:
        sim_device.load().hang(own_device().index)
    warnings: list[str] = []

    def run() -> None:
        hvd.allreduce(torch.ones(3, device=own_device()), name="the gradients")
        warnings.append(said("the device of rank 1 has not finished it"))
        said("nobody says this")

    with pytest.raises(Error, match="has not finished it after"):
        run()
    [warning] = warnings
    assert "the gradients" in warning
    assert "all 3 ranks have called it" in warning
    assert "the network hangs, not the program" in warning
    assert "has not finished it after" in str(failure_of_a_call())
    leave_together()


@sim_device.needs_simulation
def test_a_device_that_hangs_is_told_from_a_program_that_does(run_ranks: RunRanks) -> None:
    limits = {"GYRE_STALL_WARNING_SECONDS": "1", "GYRE_STALL_FAILURE_SECONDS": "3"}
    run_ranks(SIZE, body_on_a_device_that_hangs, environment={**ENVIRONMENT, **limits})


def body_of_a_rank_that_sleeps() -> None:
    """After a call of which nobody has read the result."""
    join()
    hvd.allreduce(torch.ones(3, device=own_device()), name="an earlier one")
    if hvd.rank() == 1:
        said("missing: rank 1")
        time.sleep(1)
    hvd.allreduce(torch.ones(3, device=own_device()), name="the next one")


def test_a_rank_that_sleeps_is_not_taken_for_a_device_that_hangs(run_ranks: RunRanks) -> None:
    limits = {"GYRE_STALL_WARNING_SECONDS": "1"}
    outcomes = run_ranks(SIZE, body_of_a_rank_that_sleeps, environment={**ENVIRONMENT, **limits})
    assert not any("hangs" in outcome.output for outcome in outcomes), outcomes


def body_of_a_rank_that_dies_before_its_call() -> None:
    """The library connects the ranks at their first call, and waits for them on the host."""
    join()
    carry_out = Delegate._carry_out

    def watched(delegate: Delegate, call: Call) -> None:
        if hvd.rank() == 1:
            others = [Path(f"calls.{rank}") for rank in (0, 2)]
            while not all(path.exists() for path in others):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        Path(f"calls.{hvd.rank()}").touch()
        carry_out(delegate, call)

    Delegate._carry_out = watched  # type: ignore[method-assign]
    handle = hvd.broadcast_async(torch.ones(3, device=own_device()), 0, name="the weights")
    while not Path(f"calls.{hvd.rank()}").exists():
        time.sleep(0.01)  # It is not this thread that passes the call on.
    began = time.monotonic()
    with pytest.raises(Error, match="rank 1"):
        hvd.synchronize(handle)
    assert time.monotonic() - began < PROMISED_S


def test_a_rank_that_dies_before_the_library_connects_it_ends_the_others(run_ranks: RunRanks) -> None:
    late = {"STAND_IN_CONNECTS_LATE": "broadcast"}
    outcomes = run_ranks(SIZE, body_of_a_rank_that_dies_before_its_call, check=False, environment=ENVIRONMENT | late)
    assert [outcome.code for outcome in outcomes] == [0, -signal.SIGKILL, 0], outcomes
