"""A device's library that is ended after a failure leaves wrong numbers in its tensors, which `tensor.cpu()` returns:
the failure must be raised there first, once, and not in the midst of a program's own clean-up. On the simulated device,
with a stand-in for NCCL."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import sim_device
import torch
import torch.distributed as dist
from gyre._devices import interruption
from gyre.errors import Error, MismatchError, PeerLostError
from ranks_fixture import RunRanks
from sim_device import said

SIZE = 3
DELEGATED = {"SCHEDULE": next(iter(sim_device.SCHEDULES)), "BACKEND": "gyre", "CARRIER": "delegated"}
PROMISED_S = 5
PROGRAMS = ("torch.distributed", "gyre.torch")


def join(timeout: float = 60) -> tuple[int, torch.device, Callable[[torch.Tensor], torch.Tensor]]:
    """This rank, its device, and a sum over the ranks in the interface $PROGRAM."""
    if os.environ["PROGRAM"] == "torch.distributed":
        sim_device.join_group(SIZE, timedelta(seconds=timeout))
        rank = dist.get_rank()

        def add_up(tensor: torch.Tensor) -> torch.Tensor:
            dist.all_reduce(tensor)
            return tensor

    else:
        import gyre.torch as hvd  # noqa: PLC0415  The other program does without it.

        sim_device.begin()
        hvd.init()
        rank = hvd.rank()

        def add_up(tensor: torch.Tensor) -> torch.Tensor:
            return hvd.synchronize(hvd.allreduce_async(tensor, op=hvd.Sum))

    device = sim_device.device(rank)
    assert add_up(torch.ones(2, device=device)).cpu().tolist() == [SIZE] * 2
    return rank, device, add_up


def run_python_for(seconds: float) -> None:
    """So that what is to be raised can be."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)


def body_that_loses_a_rank() -> None:
    rank, device, add_up = join()
    result = add_up(torch.full((4,), 7.0, device=device))
    if rank == 1:
        os._exit(3)  # Its stream never runs: nothing waits for it.
    seen = []
    with pytest.raises(PeerLostError, match="rank 1") as caught:
        seen.append(result.cpu())
    assert not seen
    if os.environ["PROGRAM"] == "torch.distributed":
        assert isinstance(caught.value, dist.DistBackendError)
    run_python_for(0.5)  # Nothing is raised twice.
    with pytest.raises(Error, match="rank 1"):
        add_up(torch.ones(4, device=device))
    print("done", flush=True)
    os._exit(0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_number_of_a_collective_that_failed_is_seen(run_ranks: RunRanks, program: str) -> None:
    outcomes = run_ranks(SIZE, body_that_loses_a_rank, check=False, environment={**DELEGATED, "PROGRAM": program})
    assert [outcome.code for outcome in outcomes] == [0, 3, 0], outcomes
    assert all("done" in outcomes[rank].output for rank in (0, 2))


def body_in_a_thread() -> None:
    """Some frameworks train in a thread of their own, while the main one serves something else."""
    caught: list[BaseException] = []

    def train() -> None:
        try:
            rank, device, add_up = join()
            result = add_up(torch.full((4,), 7.0, device=device))
            if rank == 1:
                os._exit(3)
            caught.append(AssertionError(f"wrong numbers: {result.cpu()}"))
        except BaseException as failure:
            caught.append(failure)
            run_python_for(0.3)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    run_python_for(0.3)  # It is not this thread's.
    assert [type(failure).__name__ for failure in caught] == ["PeerLostError"], caught
    assert "rank 1" in str(caught[0])
    os._exit(0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_thread_that_has_made_the_calls_is_interrupted(run_ranks: RunRanks, program: str) -> None:
    outcomes = run_ranks(SIZE, body_in_a_thread, check=False, environment={**DELEGATED, "PROGRAM": program})
    assert [outcome.code for outcome in outcomes] == [0, 3, 0], outcomes


def body_that_cleans_up() -> None:
    rank, device, add_up = join()
    add_up(torch.ones(3, device=device))
    if rank == 1:
        said("cleans up on rank 0")
        os._exit(3)
    steps = []
    try:
        try:
            raise KeyError("of the program's own")
        except KeyError:
            print(f"cleans up on rank {rank}", flush=True)
            run_python_for(1)
            steps.append("cleaned up")
        run_python_for(PROMISED_S)
        steps.append("went on")
    except PeerLostError:
        steps.append("interrupted")
    assert steps == ["cleaned up", "interrupted"], steps
    os._exit(0)


def test_a_program_that_handles_an_exception_is_interrupted_after_that(run_ranks: RunRanks) -> None:
    environment = {**DELEGATED, "PROGRAM": "torch.distributed"}
    outcomes = run_ranks(SIZE, body_that_cleans_up, check=False, environment=environment)
    assert [outcome.code for outcome in outcomes] == [0, 3, 0], outcomes


def body_that_begins_again() -> None:
    """As programs do that go on after a failure: nothing of the first group reaches the second."""
    rank, device, add_up = join()
    part = dist.new_group()
    dist.all_reduce(torch.ones(1, device=device), group=part)
    dist.all_reduce(torch.ones(3 + rank, device=device))
    with pytest.raises(MismatchError):
        run_python_for(PROMISED_S)
    dist.destroy_process_group()
    again = Path("again")
    again.mkdir(exist_ok=True)
    os.chdir(again)
    sim_device.join_group(SIZE)
    for _ in range(30):
        assert add_up(torch.ones(2, device=device)).tolist() == [SIZE] * 2
        time.sleep(0.01)
    dist.destroy_process_group()


def test_a_second_group_is_left_alone(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_that_begins_again, environment={**DELEGATED, "PROGRAM": "torch.distributed"})


def body_on_a_device_that_never_returns() -> None:
    interruption.LAST_WAIT_SECONDS = 0.5
    rank, device, add_up = join(timeout=1)
    if rank == 1:
        sim_device.load().hang(device.index)
    add_up(torch.ones(3, device=device)).cpu()
    print("wrong numbers")


@sim_device.needs_simulation
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_rank_ends_when_one_device_never_returns(run_ranks: RunRanks, program: str) -> None:
    limits = {"GYRE_STALL_WARNING_SECONDS": "1", "GYRE_STALL_FAILURE_SECONDS": "1"}
    environment = {**DELEGATED, **limits, "PROGRAM": program}
    outcomes = run_ranks(SIZE, body_on_a_device_that_never_returns, check=False, environment=environment)
    assert [outcome.code for outcome in outcomes] == [1, 1, 1], outcomes
    assert not any("wrong numbers" in outcome.output for outcome in outcomes)
    assert "has not finished it" in outcomes[1].output
