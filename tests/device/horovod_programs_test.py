"""Random programs of gyre.torch's operations on a device, over several streams and process sets, must have the CPU's
results: an order of calls, frees and waits that nobody has thought of is where a wait is missing. Through host memory,
and by the device's own library."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gyre.torch as hvd
import pytest
import sim_device
import torch
from effort import first_seed, rounds
from horovod_on_device import leave, own_device
from ranks_fixture import RunRanks

SIZE = 3
PROGRAMS = rounds(60, 1000)

Streams = list[Callable[[], AbstractContextManager[Any]]]


TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
]


def made(draw: random.Random, shape: list[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """This rank's."""
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30) * SIZE + hvd.rank())
    # No product of the ranks' is larger than a float16 or an int8 can be, and no number is nearly 0.
    return (torch.rand(shape, generator=generator) * 1.9 + 0.5).to(dtype).to(device) * 2


def one_call(draw: random.Random, device: torch.device, among: hvd.ProcessSet, name: str) -> list[hvd.Handle]:
    """No handle on a rank outside the set, which draws the same. The call's tensors are freed when this returns."""
    dtype = draw.choice(TYPES)
    shape = draw.choice([[], [1], [7], [300], [4, 3, 2], [0, 3]])
    several = [made(draw, shape, dtype, device), made(draw, [2, 3], dtype, device)]
    tensor = several[0].transpose(0, -1) if draw.random() < 0.3 else several[0]
    op = draw.choice([hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product])
    factors = {"prescale_factor": draw.choice([1.0, 0.5]), "postscale_factor": draw.choice([1.0, 0.25])}
    if not dtype.is_floating_point:
        factors = {}
    root = draw.choice(ranks_of(among))
    rows, numbers = made(draw, [6, 2], dtype, device), made(draw, shape, torch.float32, device)
    # By sender, what it has for each.
    splits = [[draw.randrange(3) for _ in ranks_of(among)] for _ in range(SIZE)]
    adding = draw.choice([hvd.Sum, hvd.Average])
    options = {"process_set": among}
    own = hvd.rank()

    def in_any_order() -> list[hvd.Handle]:
        calls = [
            lambda which=which: hvd.allreduce_async(several[which], name=f"{name}.{which}", op=op, **options)
            for which in (0, 1)
        ]
        if own % 2:
            calls.reverse()
        handles = [call() for call in calls]
        return handles[::-1] if own % 2 else handles

    calls: list[Callable[[], hvd.Handle | list[hvd.Handle]]] = [
        lambda: hvd.allreduce_async(tensor, op=op, **factors, **options),
        lambda: hvd.allreduce_async_(tensor, op=op, **options),
        lambda: hvd.grouped_allreduce_async(several, op=op, **factors, **options),
        lambda: hvd.grouped_allreduce_async_(several, op=op, **options),
        lambda: hvd.broadcast_async(tensor, root, **options),
        lambda: hvd.broadcast_async_(tensor, root, **options),
        lambda: hvd.allgather_async(rows[: own + 1], **options),
        lambda: hvd.allgather_async(rows[:own], **options),  # Rank 0 has none.
        lambda: hvd.grouped_allgather_async([rows[own:], numbers], **options),
        lambda: hvd.reducescatter_async(rows, op=adding, **factors, **options),
        lambda: hvd.grouped_reducescatter_async([rows, several[1]], op=adding, **options),
        lambda: hvd.alltoall_async(rows, **options),
        lambda: hvd.alltoall_async(rows[: sum(splits[own])], splits=splits[own], **options),
        lambda: hvd.allreduce_async(numbers, op=hvd.Adasum, **options),
        in_any_order,
        lambda: hvd.barrier_async(**options),
    ]
    call = draw.choice(calls)
    if own not in ranks_of(among):
        return []
    made_handles = call()
    return made_handles if isinstance(made_handles, list) else [made_handles]


def ranks_of(among: hvd.ProcessSet) -> list[int]:
    return among.ranks or list(range(SIZE))


def finished(stream: AbstractContextManager[Any], handles: list[hvd.Handle]) -> list[torch.Tensor]:
    results: list[torch.Tensor] = []
    for handle in handles:
        with stream:
            result = handle.wait()
            several = list(result) if isinstance(result, list | tuple) else [result]
            results += [(one + one).cpu() for one in several if one is not None]
    return results


def program(seed: int, device: torch.device, sets: list[hvd.ProcessSet], streams: Streams) -> list[torch.Tensor]:
    """The results of a few calls, each of them used on a stream that need not be that of the call; handles are waited
    for late, and in any order."""
    draw = random.Random(seed)
    begun: list[list[hvd.Handle]] = []
    results: list[torch.Tensor] = []
    for number in range(draw.randrange(1, 6)):
        with draw.choice(streams)():
            begun.append(one_call(draw, device, draw.choice(sets), f"{seed}.{device.type}.{number}"))
        if draw.random() < 0.4:
            results += finished(draw.choice(streams)(), begun.pop(draw.randrange(len(begun))))
    for handles in begun:
        results += finished(draw.choice(streams)(), handles)
    return results


def body() -> None:
    sim_device.begin()
    hvd.init()
    device = own_device()
    sets = [hvd.global_process_set, hvd.add_process_set([0, 2])]
    own = [torch.accelerator.current_stream(device), torch.Stream(device), torch.Stream(device)]
    streams: Streams = [lambda stream=stream: stream for stream in own]  # type: ignore[misc]
    for seed in range(first_seed(), first_seed() + PROGRAMS):
        ours = program(seed, device, sets, streams)
        wanted = program(seed, torch.device("cpu"), sets, [nullcontext for _ in streams])
        for own, right in zip(ours, wanted, strict=True):
            assert sim_device.equal(own, right), f"seed {seed}: {own} != {right}"
    leave()


@pytest.mark.parametrize("carrier", sim_device.CARRIERS)
@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
def test_random_programs_have_the_cpus_results(run_ranks: RunRanks, schedule: str, carrier: str) -> None:
    print(f"GYRE_TEST_SEED={first_seed()}")
    environment = {"SCHEDULE": schedule, "CARRIER": carrier}
    run_ranks(SIZE, body, environment=environment, timeout_s=rounds(120, 600))
