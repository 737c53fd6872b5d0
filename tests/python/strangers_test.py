"""A thread that has not used Gyre yet may bring what the ranks wait for: such a job goes on, with a warning. Threads
that certainly bring nothing (pools of libraries, Gyre's own) hide no deadlock. The rows are those of ADR 72's table."""

import _thread
import concurrent.futures
import ctypes
import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import gyre.distributed  # noqa: F401 - registers the backend
import gyre.torch as hvd
import numpy as np
import pytest
import torch
import torch.distributed as dist
from gyre.errors import MismatchError
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

PATIENCE = {"GYRE_DEADLOCK_SECONDS": "1"}
LONGEST_S = 60
ONES = torch.ones(3)

START_ROUTINE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_kept: list[object] = []


def start_in_pthread(function: Callable[[], None]) -> None:
    """As a library of the program does that calls back from a thread of its own."""

    def run(_: object) -> None:
        function()

    routine, number = START_ROUTINE(run), ctypes.c_ulong()
    _kept.append(routine)
    assert ctypes.CDLL(None).pthread_create(ctypes.byref(number), None, routine, None) == 0


def start_in_pool(function: Callable[[], None]) -> None:
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(function)
    pool.shutdown(wait=False)  # Otherwise its thread is one that has used Gyre.


def start_by_signal(function: Callable[[], None]) -> None:
    signal.signal(signal.SIGALRM, lambda *_: function())
    signal.setitimer(signal.ITIMER_REAL, 4)


STARTS: dict[str, Callable[[Callable[[], None]], None]] = {
    "thread": lambda function: threading.Thread(target=function, name="the_helper").start(),
    "timer": lambda function: threading.Timer(4, function).start(),
    "start_new_thread": lambda function: _thread.start_new_thread(function, ()) and None,
    "pthread": start_in_pthread,
    "pool": start_in_pool,
    "signal": start_by_signal,
}


def warnings() -> int:
    return sum(
        line.count("Only a thread that may still bring this")
        for file in Path.cwd().glob("body_*.0")
        for line in file.read_text().splitlines()
    )


def wait_for_warning(number: int) -> None:
    """Rank 0's warnings go to its output, which the fixture keeps in this folder."""
    until = time.monotonic() + LONGEST_S
    while warnings() < number:
        assert time.monotonic() < until, f"no warning {number}"
        time.sleep(0.05)


def reduce(name: str, process_set: hvd.ProcessSet = hvd.global_process_set) -> torch.Tensor:
    return hvd.allreduce(ONES, op=hvd.Sum, name=name, process_set=process_set)


def body_helped() -> None:
    """Rank 1's main thread waits for "b", which rank 0 calls after "a", which a thread of rank 1 brings; then the same
    with an "a" of a process set."""
    kind = os.environ["KIND"]
    hvd.init()
    pair = hvd.add_process_set([0, 1])
    reduce("first")
    for number, process_set in enumerate([hvd.global_process_set, pair], start=1):
        size = hvd.size()
        if hvd.rank() != 1:
            if hvd.rank() == 0 or process_set is not pair:
                handle = hvd.allreduce_async(ONES, op=hvd.Sum, name=f"a{number}", process_set=process_set)
                assert torch.equal(hvd.synchronize(handle), process_set.size() * ONES)
            assert torch.equal(reduce(f"b{number}"), size * ONES)
            continue
        ended = threading.Event()
        results = []

        def bring(number=number, process_set=process_set, ended=ended, results=results) -> None:
            if kind not in ("signal", "timer"):
                wait_for_warning(number)
            handle = hvd.allreduce_async(ONES, op=hvd.Sum, name=f"a{number}", process_set=process_set)
            if kind != "signal":  # There it is this thread that waits for "b".
                results.append(hvd.synchronize(handle))
            ended.set()

        STARTS[kind](bring)
        assert torch.equal(reduce(f"b{number}"), size * ONES)
        assert ended.wait(LONGEST_S)
        assert all(torch.equal(result, process_set.size() * ONES) for result in results)
    assert warnings() >= 1


@pytest.mark.parametrize("kind", STARTS)
def test_a_right_program_goes_on_whatever_thread_brings_the_operation(run_ranks, kind):
    outcomes = run_ranks(3, body_helped, environment={**PATIENCE, "KIND": kind})
    warning = next(line for line in outcomes[0].output.splitlines() if "Only a thread that may" in line)
    print(warning)
    assert "ranks 0, 2 wait for allreduce 'allreduce.a1', which needs rank 1, at " in warning
    assert "rank 1 waits for allreduce 'allreduce.b1', which needs ranks 0, 2, at " in warning
    assert "release them: on rank 1, " in warning
    if kind == "thread":
        assert re.search(r"thread 'the_helper' at \S+strangers_test\.py:\d+ in wait_for_warning\(\)", warning)
    if kind == "signal":
        assert "handler of SIGALRM" in warning
    assert "wait for ever (GYRE_STALL_FAILURE_SECONDS limits it), and this is a deadlock" in warning


def body_helped_after_eight_seconds() -> None:
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 0:
        assert torch.equal(reduce("a"), 2 * ONES)
        reduce("b")
        return

    def late() -> None:
        time.sleep(8)
        assert torch.equal(reduce("a"), 2 * ONES)

    thread = threading.Thread(target=late)
    thread.start()
    assert torch.equal(reduce("b"), 2 * ONES)
    thread.join()


def test_a_thread_that_comes_after_eight_seconds_is_waited_for_with_the_usual_settings(run_ranks):
    run_ranks(2, body_helped_after_eight_seconds)


def body_step_by_a_thread() -> None:
    """Step 2's backward() is in another thread than step 1's, while the first one waits for something else."""
    hvd.init()
    used = os.environ["KIND"] == "used"
    weight = nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)])

    def step() -> None:
        optimizer.zero_grad()
        (weight * (hvd.rank() + 1)).sum().backward()
        optimizer.step()

    step()
    if hvd.rank() == 1:
        if used:
            reduce("used")
        step()
        reduce("metric")
    else:
        begun = threading.Event()

        def late() -> None:
            if used:
                reduce("used")
            begun.set()
            wait_for_warning(1)
            step()

        thread = threading.Thread(target=late)
        thread.start()
        assert begun.wait(LONGEST_S)
        reduce("metric")
        thread.join()
    assert torch.equal(weight.detach(), torch.full((3,), -3.0))


@pytest.mark.parametrize("kind", ["new", "used"])
def test_a_step_that_another_thread_computes_is_waited_for(run_ranks, kind):
    outcomes = run_ranks(2, body_step_by_a_thread, environment={**PATIENCE, "KIND": kind})
    warning = next(line for line in outcomes[0].output.splitlines() if "Only a thread that may" in line)
    assert "rank 1 waits for the end of step 2 of gradient exchange " in warning
    assert ("on rank 0, a thread that has used Gyre and runs" if kind == "used" else "on rank 0, thread '") in warning


def start_openmp() -> None:
    torch.set_num_threads(4)
    torch.randn(1 << 20).exp_()
    assert len(os.listdir("/proc/self/task")) > 4


def start_openblas() -> None:
    np.ones((700, 700)) @ np.ones((700, 700))


def start_progress_bar() -> None:
    _kept.append(tqdm(total=3))
    assert any(type(thread).__name__ == "TMonitor" for thread in threading.enumerate())


def start_summary_writer() -> None:
    writer = SummaryWriter(f"log.{hvd.rank()}")
    writer.add_scalar("loss", 1.0, 1)
    writer.flush()
    _kept.append(writer)


def start_queue() -> None:
    queue = multiprocessing.get_context("fork").Queue()
    queue.put(1)
    assert queue.get() == 1
    queue.cancel_join_thread()
    _kept.append(queue)


LIBRARIES: dict[str, Callable[[], None]] = {
    "openmp": start_openmp,
    "openblas": start_openblas,
    "tqdm": start_progress_bar,
    "tensorboard": start_summary_writer,
    "queue": start_queue,
}


def body_deadlock() -> None:
    hvd.init()
    LIBRARIES[os.environ["KIND"]]()
    reduce("first")
    with pytest.raises(MismatchError, match=r"deadlock: rank 0 waits for allreduce 'allreduce\.a', which needs rank 1"):
        reduce("a" if hvd.rank() == 0 else "b")


@pytest.mark.parametrize("kind", LIBRARIES)
def test_threads_of_libraries_hide_no_deadlock(run_ranks, kind):
    run_ranks(2, body_deadlock, environment={**PATIENCE, "KIND": kind, "OPENBLAS_NUM_THREADS": "4"}, fresh=True)


def body_deadlock_in_torch() -> None:
    """Rank 0 has torch's store and its thread, and each rank the thread that completes futures."""
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    address = Path("address")
    store = None
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
        Path("address.new").write_text(str(store.port))
        Path("address.new").rename(address)
    else:
        until = time.monotonic() + LONGEST_S
        while not address.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(address.read_text()), size, is_master=False)
    dist.init_process_group("gyre", store=store, rank=rank, world_size=size)
    pair = dist.new_group([0, 1])
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.get_future().wait()
    groups = [pair, None] if rank == 0 else [None, pair]

    def reduce_in_both() -> None:
        for group in groups:
            dist.all_reduce(torch.ones(1), group=group)

    with pytest.raises(MismatchError, match="deadlock: "):
        reduce_in_both()


def test_torchs_store_and_futures_hide_no_deadlock(run_ranks):
    run_ranks(2, body_deadlock_in_torch, environment=PATIENCE, fresh=True)
