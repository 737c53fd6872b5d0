"""Random programs of collectives on a device, over several streams and groups, must have the CPU's results: an order of
calls, frees and waits that nobody has thought of is where a wait is missing."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sim_device
import torch
import torch.distributed as dist
from effort import first_seed, rounds
from ranks_fixture import RunRanks
from sim_device import own_device
from torch.distributed import ReduceOp

SIZE = 2
PROGRAMS = rounds(60, 1000)


def made(draw: random.Random, elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """This rank's; whole numbers, so that every order of a sum has the same bits."""
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30) * SIZE + dist.get_rank())
    return torch.randint(1, 4, (elements,), generator=generator).to(dtype).to(device)


def one_call(draw: random.Random, device: torch.device, group: Any) -> tuple[torch.Tensor, Any]:
    """(what it writes, its work)"""
    dtype = draw.choice([torch.float32, torch.float64, torch.int64, torch.uint8])
    elements = draw.choice([1, 7, 300])
    kind = draw.randrange(5)
    if kind == 0:
        result = made(draw, elements, dtype, device) + 1
        op = draw.choice([ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX])
        return result, dist.all_reduce(result, op, group=group, async_op=True)
    if kind == 1:
        result = made(draw, elements, dtype, device) + 1
        return result, dist.broadcast(result, draw.randrange(SIZE), group=group, async_op=True)
    source = made(draw, elements * SIZE, dtype, device) + 1  # Freed when this function returns.
    if kind == 2:
        result = torch.zeros(elements * SIZE * SIZE, dtype=dtype, device=device)
        return result, dist.all_gather_into_tensor(result, source, group=group, async_op=True)
    if kind == 3:
        result = torch.zeros(elements, dtype=dtype, device=device)
        return result, dist.reduce_scatter_tensor(result, source, group=group, async_op=True)
    result = torch.zeros_like(source)
    return result, dist.all_to_all_single(result, source, group=group, async_op=True)


def program(seed: int, device: torch.device, groups: list[Any], streams: list[Any]) -> list[torch.Tensor]:
    """The results of a few calls, each of them used on the stream that it was made on; works are waited for late."""
    draw = random.Random(seed)
    begun: list[tuple[Any, torch.Tensor, Any]] = []
    results = []
    for _ in range(draw.randrange(1, 6)):
        stream = draw.choice(streams)
        group = draw.choice(groups)
        with stream:
            begun.append((stream, *one_call(draw, device, group)))
        if draw.random() < 0.5:
            results.append(finished(*begun.pop(0)))
    results.extend(finished(*one) for one in begun)
    return results


def finished(stream: Any, result: torch.Tensor, work: Any) -> torch.Tensor:
    with stream:
        work.wait()
        return (result * 2).cpu()


class NoStream:
    """The CPU has none."""

    def __enter__(self) -> None: ...

    def __exit__(self, *raised: object) -> None: ...


def body() -> None:
    sim_device.join_group(SIZE)
    device, groups = own_device(), [dist.group.WORLD, dist.new_group()]
    streams = [torch.accelerator.current_stream(device), torch.Stream(device), torch.Stream(device)]
    for seed in range(first_seed(), first_seed() + PROGRAMS):
        ours = program(seed, device, groups, streams)
        wanted = program(seed, torch.device("cpu"), groups, [NoStream() for _ in streams])
        assert all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True)), f"seed {seed}: {ours} != {wanted}"
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", ["gyre", "sim:gyre"])
@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
def test_random_programs_have_the_cpus_results(run_ranks: RunRanks, schedule: str, backend: str) -> None:
    print(f"GYRE_TEST_SEED={first_seed()}")
    run_ranks(SIZE, body, environment={"SCHEDULE": schedule, "BACKEND": backend})
