"""A script that catches torch.distributed's errors, or looks for their words, must find them over Gyre too."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import gyre.distributed  # noqa: F401  Makes the backend known.
import pytest
import torch
import torch.distributed as dist

from gyre import errors


def until_there_is(*paths: str) -> None:
    until = time.monotonic() + 60
    while not all(Path(path).exists() for path in paths):
        assert time.monotonic() < until, paths
        time.sleep(0.02)


def failure_of(call: Any) -> Exception:
    with pytest.raises(dist.DistBackendError) as failure:
        call()
    assert isinstance(failure.value, errors.Error)
    return failure.value


def start(store: Any, seconds: float = 60) -> tuple[int, int]:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group("gyre", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=seconds))
    return rank, size


def barriers_over_a_store_that_lives_on() -> None:
    """What the first group wrote into the store must not let the second one's ranks pass."""
    store = dist.FileStore(f"{os.getcwd()}/store", int(os.environ["GYRE_SIZE"]))
    rank, _ = start(store)
    dist.monitored_barrier()
    dist.monitored_barrier()
    dist.destroy_process_group()
    start(store)
    second = timedelta(seconds=1)
    if rank == 2:
        until_there_is("given-up.0", "given-up.1")
        dist.barrier()
    else:
        text = str(failure_of(lambda: dist.monitored_barrier(timeout=second)))
        assert "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 1000 ms" in text, text
        assert "timed out" in text
        assert (f"Rank {rank} successfully reached monitoredBarrier, but received errors" in text) == (rank != 0), text
        Path(f"given-up.{rank}").touch()
        dist.barrier()  # The group itself goes on.
    if rank == 0:
        text = str(failure_of(lambda: dist.monitored_barrier(timeout=second, wait_all_ranks=True)))
        assert "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms" in text, text
    dist.barrier()
    dist.destroy_process_group()


def operations_that_time_out() -> None:
    store = dist.FileStore(f"{os.getcwd()}/store", int(os.environ["GYRE_SIZE"]))
    rank, _ = start(store, seconds=2)
    if rank == 2:
        until_there_is("given-up.0", "given-up.1")
        os._exit(0)
    received = failure_of(lambda: dist.recv(torch.zeros(1), src=2))
    assert isinstance(received, errors.TimeoutError)
    late = dist.all_reduce(torch.zeros(1), async_op=True)
    assert late is not None
    waited = failure_of(lambda: late.wait(timedelta(milliseconds=100)))
    for failure in (received, waited, failure_of(late.wait)):
        assert "timed out" in str(failure), failure
    assert isinstance(late.exception(), dist.DistBackendError)
    with pytest.raises(dist.DistBackendError):  # The group has failed: the next call says so at once.
        dist.barrier()
    Path(f"given-up.{rank}").touch()


def lost_peers_and_disagreement() -> None:
    store = dist.FileStore(f"{os.getcwd()}/store", int(os.environ["GYRE_SIZE"]))
    rank, _ = start(store)
    disagreement = failure_of(lambda: dist.all_reduce(torch.zeros(1 + rank)))
    assert isinstance(disagreement, errors.MismatchError)
    with pytest.raises(ValueError, match="root 7 is not a rank"):
        dist.group.WORLD._get_backend(torch.device("cpu")).broadcast(torch.zeros(1), 7)
    if rank == 2:
        os._exit(0)
    lost = failure_of(lambda: dist.all_reduce(torch.zeros(1)))
    assert isinstance(lost, errors.PeerLostError | errors.PeerLeftError)
    assert isinstance(lost, dist.DistNetworkError)


def test_a_monitored_barrier_waits_for_the_ranks_of_its_own_group(run_ranks: Any) -> None:
    run_ranks(3, barriers_over_a_store_that_lives_on)


@pytest.mark.parametrize("body", [operations_that_time_out, lost_peers_and_disagreement])
def test_failures_are_torchs_too(run_ranks: Any, body: Any) -> None:
    run_ranks(3, body)


def test_a_rank_that_never_comes_to_the_rendezvous() -> None:
    limit = timedelta(milliseconds=200)
    with pytest.raises(dist.DistStoreError, match=r"timed out.*rank 1 did not come") as failure:
        dist.init_process_group("gyre", store=dist.HashStore(), rank=0, world_size=2, timeout=limit)
    assert isinstance(failure.value, errors.TimeoutError)
    assert failure.value.code == "TIMEOUT"
