"""Ranks that wait for each other in a circle: nothing but a report ends that, which must say who waits where, and for
what; and it must never end a job in which somebody is only slow."""

import os
import re
import threading
import time
from collections.abc import Callable

import gyre.distributed  # noqa: F401 - registers the backend
import gyre.torch as hvd
import pytest
import torch
import torch.distributed as dist
from gyre.errors import MismatchError
from torch import nn

PATIENCE = {"GYRE_DEADLOCK_SECONDS": "1"}
USUAL_CAUSE = "(evaluation, logging or saving on rank 0 alone)"


def report_of(call: Callable[[], object]) -> str:
    with pytest.raises(MismatchError, match="deadlock: ") as failure:
        call()
    print(failure.value)
    assert USUAL_CAUSE in str(failure.value)
    return str(failure.value)


def checkpoint() -> None:
    hvd.barrier()  # The others.


def body_evaluation_on_rank_zero_alone() -> None:
    hvd.init()
    for epoch in range(3):
        hvd.allreduce(torch.ones(4), name="loss")
        if hvd.rank() == 0 and epoch == 1:
            report = report_of(
                lambda: hvd.allreduce(torch.ones(1), name="accuracy")  # On rank 0 alone.
            )
            break
        if epoch == 1:
            report = report_of(checkpoint)
            break
    assert "rank 0 waits for allreduce 'allreduce.accuracy', which needs ranks 1, 2, at " in report
    assert "# On rank 0 alone.`" in report
    assert "ranks 1, 2 wait for barrier 'barrier.noname.1', which needs rank 0, at " in report
    assert "# The others.`" in report
    assert "the same operations in different orders: " in report


def test_a_collective_on_rank_zero_alone_is_a_deadlock_and_not_a_hang(run_ranks):
    run_ranks(3, body_evaluation_on_rank_zero_alone, environment=PATIENCE)


def body_before_there_is_a_plan() -> None:
    """In the first step the ranks agree on their exchange; and before, when the optimizer is wrapped."""
    hvd.init()
    weight = nn.Parameter(torch.ones(3))

    def wrap() -> torch.optim.Optimizer:
        return hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)])

    if hvd.rank() == 0:
        report = report_of(lambda: hvd.allreduce(torch.ones(1), name="sanity_check"))
    else:
        report = report_of(wrap)
    assert "rank 0 waits for allreduce 'allreduce.sanity_check', which needs rank 1, at " in report
    assert (
        "rank 1 waits for the agreement about gradient exchange 'optimizer.1' (allgather), which needs rank 0, at "
        in report
    )


def body_first_step() -> None:
    hvd.init()
    weight = nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)])
    if hvd.rank() == 0:
        report = report_of(lambda: hvd.allreduce(torch.ones(1), name="sanity_check"))
    else:
        report = report_of(lambda: weight.sum().backward())
    assert optimizer is not None
    assert "rank 1 waits for allreduce 'allreduce.optimizer.1.first_step', which needs rank 0, at " in report
    assert "weight.sum().backward()" in report


@pytest.mark.parametrize("body", [body_before_there_is_a_plan, body_first_step])
def test_a_deadlock_in_the_first_step_is_found(run_ranks, body):
    run_ranks(2, body, environment=PATIENCE)


def body_process_set() -> None:
    hvd.init()
    pair = hvd.add_process_set([0, 2])
    everybody = torch.ones(1)
    if hvd.rank() == 2:
        report = report_of(lambda: hvd.allreduce(everybody, name="of_two", process_set=pair))
    else:
        report = report_of(lambda: hvd.allreduce(everybody, name="of_all"))
    # The coordinator of the pair, if it is the first to look, asks those two only.
    assert re.search(r"ranks? 0(, 1)? waits? for allreduce 'allreduce\.of_all', which needs rank 2, at ", report)
    assert "rank 2 waits for allreduce 'allreduce.of_two', which needs rank 0, at " in report


def body_two_groups_of_torch() -> None:
    """In different orders: each group by itself sees nothing wrong."""
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group("gyre", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
    pair = dist.new_group([0, 1])
    groups = [pair, None] if rank == 0 else [None, pair]

    def reduce_in_both() -> None:
        for group in groups:
            dist.all_reduce(torch.ones(1), group=group)

    report = report_of(reduce_in_both)  # Not that the other rank, which has heard the report first, has left.
    assert "rank 0 waits for collective " in report
    assert "rank 1 waits for collective " in report
    assert "dist.all_reduce(torch.ones(1), group=group)" in report


def body_circle_without_rank_zero() -> None:
    """The coordinator that finds it is no member of one of its groups."""
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group("gyre", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=size)
    pair = dist.new_group([1, 2])
    groups = [[None], [pair, None], [None, pair]][rank]

    def reduce_in_all() -> None:
        for group in groups:
            dist.all_reduce(torch.ones(1), group=group)

    report = report_of(reduce_in_all)
    assert "rank 1 waits for collective " in report
    assert re.search("ranks? (0, )?2 waits? for collective ", report)


@pytest.mark.parametrize(
    ("body", "ranks"), [(body_process_set, 3), (body_two_groups_of_torch, 2), (body_circle_without_rank_zero, 3)]
)
def test_a_deadlock_across_groups_is_found(run_ranks, body, ranks):
    run_ranks(ranks, body, environment=PATIENCE)


def body_only_slow() -> None:
    """All of it ends well, long after the first look: a rank that computes, one whose other thread brings what the
    others wait for, and one that has submitted what it does not yet wait for."""
    hvd.init()
    rank = hvd.rank()
    if rank == 1:
        time.sleep(2.5)
    hvd.allreduce(torch.ones(1), name="late")

    def in_thread() -> None:
        hvd.allreduce(torch.ones(1), name="known")
        if rank == 1:
            time.sleep(2.5)
        hvd.allreduce(torch.ones(1), name="of_thread")

    thread = threading.Thread(target=in_thread)
    thread.start()
    if rank == 2:
        thread.join()  # So that "of_main" needs it, and it "of_thread", which needs rank 1's thread.
    hvd.allreduce(torch.ones(1), name="of_main")
    thread.join()

    ahead = [hvd.allreduce_async(torch.ones(1), name=name) for name in (("a", "b") if rank == 0 else ())]
    if rank != 0:
        for name in ("b", "a"):
            time.sleep(1.5)
            hvd.allreduce(torch.ones(1), name=name)
    for handle in ahead:
        hvd.synchronize(handle)


def test_who_is_only_slow_is_left_in_peace(run_ranks):
    run_ranks(3, body_only_slow, environment=PATIENCE)


def body_waits_with_a_limit() -> None:
    hvd.init()
    hvd.barrier()
    name = "a" if hvd.rank() == 0 else "b"
    handle = hvd.allreduce_async(torch.ones(1), name=name)
    handle._core_handle.wait_for(2.5)  # The rank whose wait began later may be released by the other's end.
    other = hvd.allreduce_async(torch.ones(1), name="b" if name == "a" else "a")
    hvd.synchronize(handle)
    hvd.synchronize(other)


def test_a_wait_with_a_limit_of_its_own_is_no_deadlock(run_ranks):
    run_ranks(2, body_waits_with_a_limit, environment=PATIENCE)
