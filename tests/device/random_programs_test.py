"""Random programs of collectives on a device, over several streams and groups, must have the CPU's results: an order of
calls, frees and waits that nobody has thought of is where a wait is missing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8]


class Together:
    """The works of several calls, as one."""

    def __init__(self, works: Sequence[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


@dataclass
class Draw:
    """What the calls of one program are drawn from, alike on all ranks."""

    random: random.Random
    device: torch.device
    group: Any
    dtype: torch.dtype
    elements: int

    def made(self, elements: int) -> torch.Tensor:
        """This rank's; small whole numbers, so that every order of a sum has the same bits."""
        generator = torch.Generator().manual_seed(self.random.randrange(1 << 30) * SIZE + dist.get_rank())
        # By a kernel, so that a call has something to wait for.
        return torch.randint(1, 4, (elements,), generator=generator).to(self.dtype).to(self.device) + 1

    def own(self) -> torch.Tensor:
        return self.made(self.elements)

    def empty(self, elements: int) -> torch.Tensor:
        return torch.zeros(elements, dtype=self.dtype, device=self.device)

    def sizes(self) -> list[int]:
        """Of what one rank has for each: unequal ones."""
        return [self.random.randrange(1, 9) for _ in range(SIZE)]

    def root(self) -> int:
        return self.random.randrange(SIZE)

    def operation(self) -> Any:
        return self.random.choice([ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT, ReduceOp.AVG])


# What has been called, and what came of it.
Result = tuple[str, torch.Tensor]
# A call: what it writes, and its work. What it sends is freed when the function returns.
Begun = tuple[list[torch.Tensor], Any]


def all_reduce(draw: Draw) -> Begun:
    result = draw.own()
    return [result], dist.all_reduce(result, draw.operation(), group=draw.group, async_op=True)


def reduce(draw: Draw) -> Begun:
    result = draw.own()
    return [result], dist.reduce(result, draw.root(), draw.operation(), group=draw.group, async_op=True)


def broadcast(draw: Draw) -> Begun:
    result = draw.own()
    return [result], dist.broadcast(result, draw.root(), group=draw.group, async_op=True)


def all_gather(draw: Draw) -> Begun:
    sizes = draw.sizes()
    results = [draw.empty(size) for size in sizes]
    return results, dist.all_gather(results, draw.made(sizes[dist.get_rank()]), group=draw.group, async_op=True)


def all_gather_into_tensor(draw: Draw) -> Begun:
    result = draw.empty(draw.elements * SIZE)
    return [result], dist.all_gather_into_tensor(result, draw.own(), group=draw.group, async_op=True)


def gather(draw: Draw) -> Begun:
    root, source = draw.root(), draw.own()
    results = [draw.empty(draw.elements) for _ in range(SIZE)] if dist.get_rank() == root else []
    return results, dist.gather(source, results or None, root, group=draw.group, async_op=True)


def scatter(draw: Draw) -> Begun:
    root, sources, result = draw.root(), [draw.own() for _ in range(SIZE)], draw.empty(draw.elements)
    given = sources if dist.get_rank() == root else None
    return [result], dist.scatter(result, given, root, group=draw.group, async_op=True)


def reduce_scatter(draw: Draw) -> Begun:
    sizes = draw.sizes()
    sources, result = [draw.made(size) for size in sizes], draw.empty(sizes[dist.get_rank()])
    return [result], dist.reduce_scatter(result, sources, draw.operation(), group=draw.group, async_op=True)


def reduce_scatter_tensor(draw: Draw) -> Begun:
    source, result = draw.made(draw.elements * SIZE), draw.empty(draw.elements)
    return [result], dist.reduce_scatter_tensor(result, source, draw.operation(), group=draw.group, async_op=True)


def all_to_all(draw: Draw) -> Begun:
    own, table = dist.get_rank(), [draw.sizes() for _ in range(SIZE)]  # Of rank, by its receiver.
    sources = [draw.made(size) for size in table[own]]
    results = [draw.empty(table[other][own]) for other in range(SIZE)]
    return results, dist.all_to_all(results, sources, group=draw.group, async_op=True)


def all_to_all_single(draw: Draw) -> Begun:
    source, result = draw.made(draw.elements * SIZE), draw.empty(draw.elements * SIZE)
    return [result], dist.all_to_all_single(result, source, group=draw.group, async_op=True)


def all_to_all_with_splits(draw: Draw) -> Begun:
    own, table = dist.get_rank(), [draw.sizes() for _ in range(SIZE)]
    received = [table[other][own] for other in range(SIZE)]
    source, result = draw.made(sum(table[own])), draw.empty(sum(received))
    return [result], dist.all_to_all_single(result, source, received, table[own], group=draw.group, async_op=True)


def all_reduce_together(draw: Draw) -> Begun:
    results, operation = [draw.own() for _ in range(3)], draw.operation()
    with dist._coalescing_manager(group=draw.group, device=draw.device, async_ops=True) as works:
        for result in results:
            dist.all_reduce(result, operation, group=draw.group)
    return results, works


def all_gather_together(draw: Draw) -> Begun:
    sources, results = [draw.own() for _ in range(2)], [draw.empty(draw.elements * SIZE) for _ in range(2)]
    with dist._coalescing_manager(group=draw.group, device=draw.device, async_ops=True) as works:
        for source, result in zip(sources, results, strict=True):
            dist.all_gather_into_tensor(result, source, group=draw.group)
    return results, works


def message(draw: Draw) -> Begun:
    sender, tensor, result = draw.root(), draw.own(), draw.empty(draw.elements)
    if dist.get_rank() == sender:
        return [], dist.isend(tensor, 1 - sender, group=draw.group)
    return [result], dist.irecv(result, sender, group=draw.group)


def messages_at_once(draw: Draw) -> Begun:
    other, tensor, result = 1 - dist.get_rank(), draw.own(), draw.empty(draw.elements)
    both = [
        dist.P2POp(dist.isend, tensor, other, group=draw.group),
        dist.P2POp(dist.irecv, result, other, group=draw.group),
    ]
    if draw.random.random() < 0.5:
        both.reverse()
    return [result], Together(dist.batch_isend_irecv(both))


def nothing_but_hosts(draw: Draw) -> Begun:
    """Between calls of the device: objects and a barrier."""
    everybodys: list[Any] = [None] * SIZE
    dist.all_gather_object(everybodys, {"of": dist.get_rank(), "drawn": draw.elements}, group=draw.group)
    dist.barrier(group=draw.group)
    return [torch.tensor([one["of"] * one["drawn"] for one in everybodys], device=draw.device)], Together([])


CALLS: list[Callable[[Draw], Begun]] = [
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    all_gather_into_tensor,
    gather,
    scatter,
    reduce_scatter,
    reduce_scatter_tensor,
    all_to_all,
    all_to_all_single,
    all_to_all_with_splits,
    all_reduce_together,
    all_gather_together,
    message,
    messages_at_once,
    nothing_but_hosts,
]


def program(seed: int, device: torch.device, groups: list[Any], streams: list[Any]) -> list[Result]:
    """The results of a few calls, each of them used on the stream that it was made on; works are waited for late."""
    draw = random.Random(seed)
    begun: list[tuple[Any, str, list[torch.Tensor], Any]] = []
    results: list[Result] = []
    for _ in range(draw.randrange(1, 6)):
        stream = draw.choice(streams)
        call = draw.choice(CALLS)
        drawn = Draw(draw, device, draw.choice(groups), draw.choice(TYPES), draw.choice([1, 7, 300]))
        with stream:
            begun.append((stream, f"{call.__name__} of {drawn.elements} {drawn.dtype}", *call(drawn)))
        if draw.random() < 0.5:
            results += finished(*begun.pop(0))
    for one in begun:
        results += finished(*one)
    return results


def finished(stream: Any, description: str, results: list[torch.Tensor], work: Any) -> list[Result]:
    with stream:
        work.wait()
        return [(description, (result * 2).cpu()) for result in results]


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
        for (call, own), (_, right) in zip(ours, wanted, strict=True):
            assert torch.equal(own, right), f"seed {seed}: {call}, of {[one for one, _ in ours]}: {own} != {right}"
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", sim_device.BACKENDS)
@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
def test_random_programs_have_the_cpus_results(run_ranks: RunRanks, schedule: str, backend: str) -> None:
    print(f"GYRE_TEST_SEED={first_seed()}")
    environment = {"SCHEDULE": schedule, "BACKEND": backend}
    run_ranks(SIZE, body, environment=environment, timeout_s=rounds(120, 600))
