"""When calls that go to a device's own library fail, users see every rank hang, and all abort together: each cause must
be named, by one message, before the library's own limit. On the simulated device, with a stand-in for NCCL."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sim_device
import torch
import torch.distributed as dist
from gyre.errors import MismatchError, TimeoutError
from ranks_fixture import RunRanks
from sim_device import own_device, said

SIZE = 3
ENVIRONMENT = {"SCHEDULE": next(iter(sim_device.SCHEDULES)), "BACKEND": "gyre"}
PATIENCE_S = 60
PROMISED_S = 5


def join(timeout: float = 60) -> None:
    sim_device.join_group(SIZE, timedelta(seconds=timeout))
    first = torch.ones(2, device=own_device())
    dist.all_reduce(first)
    first.cpu()  # Under the lazy schedule nothing runs before somebody waits.


def failure_after(*calls: Callable[[], object]) -> BaseException:
    """What interrupts the program during these calls, or after them."""

    def run() -> None:
        for call in calls:
            call()
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            time.sleep(0.01)

    with pytest.raises(dist.DistBackendError) as caught:
        run()
    return caught.value


def add_up(tensor: torch.Tensor) -> Callable[[], object]:
    return functools.partial(dist.all_reduce, tensor)


def body_with_a_mismatch() -> None:
    join()
    tensor = torch.ones(4 if dist.get_rank() == 1 else 3, device=own_device())
    began = time.monotonic()
    failure = failure_after(lambda: dist.all_reduce(tensor))  # Of different shapes.
    assert time.monotonic() - began < PROMISED_S
    assert isinstance(failure, MismatchError)
    told = str(failure)
    assert "the shape differs: allreduce of float32 [3]" in told, told
    assert "allreduce of float32 [4]" in told, told
    here = f"{Path(__file__).name}:{dist_line('# Of different shapes.')}"
    assert told.count(here) == SIZE, told


def dist_line(comment: str) -> int:
    """The number of this file's line that ends so."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.endswith(comment))


def test_a_mismatch_shows_both_calls_and_all_lines(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_with_a_mismatch, environment=ENVIRONMENT)


def body_of_two_operations() -> None:
    join()
    tensor = torch.ones(SIZE, device=own_device())
    call = functools.partial(dist.broadcast, tensor, 0) if dist.get_rank() == 2 else add_up(tensor)
    assert "the operation differs" in str(failure_after(call))


def test_different_operations_are_found(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_of_two_operations, environment=ENVIRONMENT)


def body_of_a_call_that_waits_on_the_host() -> None:
    """As NCCL's do where they connect the ranks for an algorithm that has not been used yet."""
    join()
    tensor = torch.ones(SIZE, device=own_device())
    began = time.monotonic()
    if dist.get_rank() == 2:
        with pytest.raises(dist.DistBackendError, match="the operation differs"):
            dist.broadcast(tensor, 0)
    else:
        assert "the operation differs" in str(failure_after(add_up(tensor)))
    assert time.monotonic() - began < PROMISED_S


def test_a_call_that_waits_on_the_host_for_ranks_that_call_another_is_found(run_ranks: RunRanks) -> None:
    environment = {**ENVIRONMENT, "STAND_IN_CONNECTS_LATE": "broadcast"}
    run_ranks(SIZE, body_of_a_call_that_waits_on_the_host, environment=environment)


def body_on_the_cpu_and_a_device() -> None:
    join()
    if dist.get_rank() == 0:
        with pytest.raises(MismatchError, match="what exchanges the tensor differs"):
            dist.all_reduce(torch.ones(3))
    else:
        failure = failure_after(add_up(torch.ones(3, device=own_device())))
        assert "what exchanges the tensor differs" in str(failure)


def test_a_tensor_of_the_cpu_does_not_meet_one_of_a_device(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_on_the_cpu_and_a_device, environment=ENVIRONMENT)


def body_without_one_rank() -> None:
    join()
    tensor = torch.ones(3, device=own_device())
    if dist.get_rank() == 2:
        said("stall: ")  # While it is here.
    dist.all_reduce(tensor)
    assert tensor.tolist() == [SIZE] * 3


def test_a_missing_rank_is_named_with_its_line(run_ranks: RunRanks) -> None:
    outcomes = run_ranks(SIZE, body_without_one_rank, environment={**ENVIRONMENT, "GYRE_STALL_WARNING_SECONDS": "1"})
    report = next(line for line in outcomes[0].output.splitlines() if "stall: " in line)
    ready, missing = report.split("; missing: ")
    assert "on ranks 0, 1" in ready, report
    assert missing.startswith("rank 2 (host "), report
    assert f"{Path(sim_device.__file__).name}:" in missing, report  # said() waits there.


def body_at_the_limit() -> None:
    join(timeout=3)
    if dist.get_rank() == 2:
        said("rank 0: ")
        return
    began = time.monotonic()
    failure = failure_after(add_up(torch.ones(3, device=own_device())))
    assert time.monotonic() - began < 3 + PROMISED_S
    assert isinstance(failure, TimeoutError)
    assert "missing: rank 2" in str(failure), failure


def test_at_the_limit_the_missing_rank_is_named_before_the_library_aborts(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_at_the_limit, environment=ENVIRONMENT)


def body_with_messages_of_different_sizes() -> None:
    join()
    began = time.monotonic()
    if dist.get_rank() == 0:
        failure = failure_after(lambda: dist.send(torch.ones(4, device=own_device()), 1))  # Of four.
    elif dist.get_rank() == 1:
        failure = failure_after(lambda: dist.recv(torch.ones(3, device=own_device()), 0))  # Of three.
    else:
        failure_after(add_up(torch.ones(1, device=own_device())))
        return
    assert time.monotonic() - began < PROMISED_S
    assert isinstance(failure, MismatchError)
    told = str(failure)
    for call, line in (
        ("rank 0: a send to rank 1 of 4 elements of float32, shape [4]", dist_line("# Of four.")),
        ("rank 1: a receive from rank 0 of 3 elements of float32, shape [3]", dist_line("# Of three.")),
    ):
        assert f"{call}, at {__file__}:{line}" in told, told


def test_a_message_whose_ends_differ_shows_both_calls_and_lines(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_with_messages_of_different_sizes, environment=ENVIRONMENT)


def body_with_messages_that_meet() -> None:
    """In both directions, in batches, of other shapes but as many elements: nobody is accused."""
    join()
    rank, device = dist.get_rank(), own_device()
    for _ in range(3):
        if rank == 0:
            dist.send(torch.ones(2, 3, device=device), 1)
        elif rank == 1:
            dist.recv(torch.zeros(6, device=device), 0)
        received = torch.zeros(2, device=device)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.full((2,), float(rank), device=device), (rank + 1) % SIZE),
                dist.P2POp(dist.irecv, received, (rank - 1) % SIZE),
            ]
        )
        for work in works:
            work.wait()
        assert received.tolist() == [(rank - 1) % SIZE] * 2
    time.sleep(0.3)  # Three looks of the record.
    dist.all_reduce(torch.ones(1, device=device))
    dist.barrier()


def test_messages_that_meet_are_left_alone(run_ranks: RunRanks) -> None:
    outcomes = run_ranks(SIZE, body_with_messages_that_meet, environment=ENVIRONMENT)
    assert not any("disagree" in outcome.output for outcome in outcomes)


def body_without_a_receiver() -> None:
    join(timeout=3)
    if dist.get_rank() != 0:
        said("; timed out")  # While it is here.
        return
    began = time.monotonic()
    failure = failure_after(lambda: dist.send(torch.ones(4, device=own_device()), 1))  # To nobody.
    assert time.monotonic() - began < 3 + PROMISED_S
    assert isinstance(failure, TimeoutError)
    assert f"at {__file__}:{dist_line('# To nobody.')}" in str(failure), failure
    assert "missing: rank 1, which has not called recv" in str(failure), failure


def test_the_missing_rank_of_a_message_is_named_with_the_others_line(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_without_a_receiver, environment=ENVIRONMENT)


def body_on_a_device_that_hangs() -> None:
    join(timeout=6)
    device = own_device()
    if dist.get_rank() == 1:
        sim_device.load().hang(device.index)
    warnings: list[str] = []
    failure = failure_after(
        add_up(torch.ones(3, device=device)), lambda: warnings.append(said("rank 1 has not finished it"))
    )
    [warning] = warnings
    assert "all 3 ranks have called it" in warning
    assert "the network hangs, not the program" in warning
    assert "has not finished it after" in str(failure), failure
    print(f"done on rank {dist.get_rank()}", flush=True)
    for rank in range(SIZE):
        said(f"done on rank {rank}")  # A rank that has gone would be the failure of those that look later.
    os._exit(0)  # The device hangs still.


@sim_device.needs_simulation
def test_a_device_that_hangs_is_told_from_a_program_that_does(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_on_a_device_that_hangs, environment={**ENVIRONMENT, "GYRE_STALL_WARNING_SECONDS": "1"})


def body_of_a_call_that_is_refused_on_one_rank() -> None:
    """The others hear of it, and do not hang."""
    join()
    tensor: Any = torch.ones(4, device=own_device())
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match="contiguous"):
            dist.all_reduce(tensor.view(2, 2).t())
        said("rank 1: ")
    else:
        assert "rank 0" in str(failure_after(add_up(tensor.view(2, 2))))


def test_a_call_that_the_library_refuses_on_one_rank_is_no_hang(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_of_a_call_that_is_refused_on_one_rank, environment=ENVIRONMENT)


def body_with_device_id() -> None:
    """torch would lose it for a group in Python; it has no effect, and breaks nothing."""
    sim_device.follow(os.environ["SCHEDULE"])
    sim_device.register_stand_in()
    rank = int(os.environ["GYRE_RANK"])
    device = sim_device.device(rank)
    dist.init_process_group("gyre", store=sim_device.meet(rank), rank=rank, world_size=SIZE, device_id=device)
    tensor = torch.full((3,), float(rank), device=device)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0] * 3
    mesh = dist.init_device_mesh(sim_device.NAME, (SIZE,))
    dist.all_reduce(tensor, group=mesh.get_group())
    assert tensor.tolist() == [9.0] * 3
    dist.barrier()
    dist.destroy_process_group()


def test_device_id_is_accepted(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_with_device_id, environment=ENVIRONMENT)
