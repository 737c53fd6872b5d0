"""Whatever becomes of one rank, and whenever: each rank ends within seconds with an error, and reads no wrong number
before. Random programs on the simulated device, compared with what their numbers are on a page."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import gyre.torch as hvd
import pytest
import sim_device
import torch
import torch.distributed as dist
from effort import first_seed, rounds
from gyre._devices import interruption
from ranks_fixture import RunRanks

SIZE = 3
CALLS = 8
LIMIT_S = 2
PROMISED_S = 15  # Of a busy machine.
FAULTS = ("killed", "exits", "fails", "sleeps", "hangs")


def sum_of(call: int, ranks: range) -> float:
    return float(sum(10 * call + rank for rank in ranks))


def one_call(interface: str, kind: str, call: int, rank: int, device: torch.device) -> tuple[torch.Tensor, list[float]]:
    """The tensor of its result, and what will be in it."""
    own = torch.full((2,), float(10 * call + rank)).to(device)
    if interface == "gyre.torch":
        if kind == "sum":
            return hvd.allreduce(own, op=hvd.Sum, name=f"call {call}"), [sum_of(call, range(SIZE))] * 2
        return hvd.broadcast(own, call % SIZE, name=f"call {call}"), [
            sum_of(call, range(call % SIZE, call % SIZE + 1))
        ] * 2
    if kind == "sum":
        dist.all_reduce(own)
        return own, [sum_of(call, range(SIZE))] * 2
    dist.broadcast(own, call % SIZE)
    return own, [sum_of(call, range(call % SIZE, call % SIZE + 1))] * 2


READS: list[Callable[[torch.Tensor], list[float]]] = [
    lambda tensor: tensor.cpu().tolist(),
    torch.Tensor.tolist,
    lambda tensor: [float(one) for one in tensor],
    lambda tensor: [one.item() for one in tensor * 1],
]


def suffer(fault: str, device: torch.device) -> None:
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exits":
        sys.exit(0)
    if fault == "fails":
        raise ValueError("the program's own")
    if fault == "hangs":
        sim_device.load().hang(device.index)
        return
    until = time.monotonic() + PROMISED_S  # Until its launcher would end it, because the others have ended.
    while time.monotonic() < until and len(list(Path.cwd().glob("ended.*"))) < SIZE - 1:
        time.sleep(0.05)
    os._exit(3)


def body() -> None:
    seed, interface = int(os.environ["SEED"]), os.environ["INTERFACE"]
    interruption.LAST_WAIT_SECONDS = 0.5
    if interface == "gyre.torch":
        sim_device.begin()
        hvd.init()
        rank = hvd.rank()
    else:
        sim_device.join_group(SIZE, timedelta(seconds=LIMIT_S))
        rank = dist.get_rank()
    device, shared, own = sim_device.device(rank), random.Random(seed), random.Random(seed * SIZE + rank)
    fault, faulty, when = shared.choice(FAULTS), shared.randrange(SIZE), shared.randrange(1, CALLS)
    print(f"seed {seed}: rank {faulty} {fault} at call {when}", flush=True)
    unread = []
    try:
        for call in range(CALLS + 1):
            if (rank, call) == (faulty, when):
                suffer(fault, device)
            unread.append(one_call(interface, shared.choice(["sum", "broadcast"]), call, rank, device))
            while unread and (own.random() < 0.5 or call == CALLS):
                result, wanted = unread.pop(own.randrange(len(unread)))
                found = own.choice(READS)(result)
                print("right" if found == wanted else f"WRONG: {found} in place of {wanted}", flush=True)
        print("read all", flush=True)
    finally:
        Path(f"ended.{rank}").touch()


@sim_device.needs_simulation
@pytest.mark.parametrize("interface", ["torch.distributed", "gyre.torch"])
def test_no_rank_reads_a_wrong_number_or_stays(run_ranks: RunRanks, tmp_path: Path, interface: str) -> None:
    for seed in range(first_seed(), first_seed() + rounds(1, 30)):
        environment = {
            "SEED": str(seed),
            "INTERFACE": interface,
            "SCHEDULE": random.Random(seed).choice(list(sim_device.SCHEDULES)),
            "BACKEND": "gyre",
            "CARRIER": "delegated",
            "GYRE_STALL_WARNING_SECONDS": "1",
            "GYRE_STALL_FAILURE_SECONDS": str(LIMIT_S),
        }
        for left in [*tmp_path.glob("ended.*"), *tmp_path.glob("port*")]:
            left.unlink()
        began = time.monotonic()
        outcomes = run_ranks(SIZE, body, check=False, environment=environment, timeout_s=PROMISED_S)
        for rank, outcome in enumerate(outcomes):
            told = f"GYRE_TEST_SEED={seed}, rank {rank} ended with {outcome.code}:\n{outcome.output}"
            assert "WRONG" not in outcome.output, told
            assert "read all" not in outcome.output, told
            assert outcome.code != 0 or f"rank {rank} exits" in outcome.output, told
            assert outcome.code != -signal.SIGABRT, told
        assert time.monotonic() - began < PROMISED_S, outcomes
