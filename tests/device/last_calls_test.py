"""Calls on a device are compared in the background: those just before a program ends must be compared before it does,
or a job with wrong numbers ends as one that is right. On the simulated device, with a stand-in for NCCL."""

from __future__ import annotations

import atexit

import pytest
import sim_device
import torch
import torch.distributed as dist
from gyre.errors import MismatchError, PeerLeftError
from ranks_fixture import RunRanks
from sim_device import own_device

SIZE = 3
ENVIRONMENT = {"SCHEDULE": "lazy", "BACKEND": "gyre"}


def join() -> None:
    sim_device.join_group(SIZE)
    dist.all_reduce(torch.ones(2, device=own_device()))


def make_a_call_that_differs() -> None:
    dist.all_reduce(torch.ones(4 if dist.get_rank() == 1 else 3, device=own_device()))


def body_that_destroys_its_group() -> None:
    join()
    make_a_call_that_differs()
    with pytest.raises(MismatchError, match=r"the shape differs.*Called at: rank 0: .*rank 2: "):
        dist.destroy_process_group()


def test_the_last_call_is_compared_before_a_group_is_destroyed(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_that_destroys_its_group, environment=ENVIRONMENT)


def body_that_ends() -> None:
    join()
    make_a_call_that_differs()
    # What a program leaves for its end still happens.
    atexit.register(print, "the end of the program", flush=True)


def test_a_program_whose_last_call_differs_does_not_end_with_success(run_ranks: RunRanks) -> None:
    for outcome in run_ranks(SIZE, body_that_ends, environment=ENVIRONMENT, check=False):
        assert outcome.code == 1, outcome
        assert "MismatchError: the ranks disagree" in outcome.output, outcome
        assert "allreduce of float32 [3]" in outcome.output, outcome
        assert "allreduce of float32 [4]" in outcome.output, outcome
        assert "the end of the program" in outcome.output, outcome


def body_with_a_call_that_only_one_rank_makes() -> None:
    join()
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(3, device=own_device()))
        with pytest.raises(PeerLeftError, match="collective 2 of process group '0'"):
            dist.destroy_process_group()


def test_a_last_call_that_the_others_never_make_is_an_error(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_with_a_call_that_only_one_rank_makes, environment=ENVIRONMENT)


def body_whose_last_message_differs() -> None:
    join()
    if dist.get_rank() == 2:
        return
    if dist.get_rank() == 0:
        dist.send(torch.ones(4, device=own_device()), 1)
    else:
        dist.recv(torch.ones(3, device=own_device()), 0)
    with pytest.raises(MismatchError, match="disagree about a message"):
        dist.destroy_process_group()


def test_the_last_message_is_compared_before_its_group_is_destroyed(run_ranks: RunRanks) -> None:
    outcomes = run_ranks(SIZE, body_whose_last_message_differs, environment=ENVIRONMENT, check=False)
    assert [outcome.code for outcome in outcomes[:2]] == [0, 0], outcomes


def body_that_has_failed_already() -> None:
    """Nobody waits for calls that the others have no reason to make any more."""
    join()
    if dist.get_rank() != 0:
        return
    dist.all_reduce(torch.ones(3, device=own_device()))
    try:
        raise KeyError("the program's own")
    finally:
        dist.destroy_process_group()


def test_a_program_with_an_error_of_its_own_shows_that(run_ranks: RunRanks) -> None:
    outcomes = run_ranks(SIZE, body_that_has_failed_already, environment=ENVIRONMENT, check=False)
    assert outcomes[0].code == 1
    assert outcomes[0].output.rstrip().endswith('KeyError: "the program\'s own"'), outcomes[0]


def body_with_all_calls_at_the_end() -> None:
    """Of two groups, and messages, with nothing between them and the end."""
    join()
    rank, device, part = dist.get_rank(), own_device(), dist.new_group()
    for group in (dist.group.WORLD, part):
        for _ in range(5):
            dist.all_reduce(torch.ones(3, device=device), group=group)
        dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.ones(2, device=device), (rank + 1) % SIZE, group),
                dist.P2POp(dist.irecv, torch.ones(2, device=device), (rank - 1) % SIZE, group),
            ]
        )
    if rank == 1:
        return  # One rank without, the others with:
    dist.destroy_process_group()


def test_calls_that_are_alike_end_in_peace(run_ranks: RunRanks) -> None:
    for outcome in run_ranks(SIZE, body_with_all_calls_at_the_end, environment=ENVIRONMENT):
        assert "Error" not in outcome.output, outcome
