"""What docs/guide/from_ddp.md says of types, rendezvous, compiled functions and messages that nobody receives."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import gyre.distributed  # noqa: F401  Makes the backend known.
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from gyre.errors import Error, TimeoutError

TYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]
TYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
MOVED_ONLY = [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]


def start(timeout_s: float = 60, method: str = "") -> tuple[int, int]:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    method = method or f"file://{os.getcwd()}/store"
    dist.init_process_group(
        "gyre", init_method=method, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s)
    )
    return rank, size


def same(left: torch.Tensor, right: torch.Tensor) -> None:
    assert left.dtype == right.dtype
    if left.dtype in MOVED_ONLY:
        left, right = left.double(), right.double()
    assert torch.equal(left, right), (left, right)


def moves(dtype: torch.dtype, rank: int, size: int) -> dict[str, Callable[[], None]]:
    """What moves values without changing them: every operation by its name."""

    def of(number: int) -> torch.Tensor:
        return torch.tensor([number % 2, 1, 0]).to(dtype)

    def broadcast() -> None:
        tensor = of(rank)
        dist.broadcast(tensor, 1)
        same(tensor, of(1))

    def all_gather() -> None:
        parts = [of(7) for _ in range(size)]
        dist.all_gather(parts, of(rank))
        for other, part in enumerate(parts):
            same(part, of(other))

    def all_gather_into_tensor() -> None:
        whole = torch.zeros(3 * size).to(dtype)
        dist.all_gather_into_tensor(whole, of(rank))
        same(whole, torch.cat([of(other) for other in range(size)]))

    def scatter() -> None:
        own = of(7)
        dist.scatter(own, [of(other) for other in range(size)] if rank == 0 else None, 0)
        same(own, of(rank))

    def all_to_all_single() -> None:
        received = torch.zeros(3 * size).to(dtype)
        dist.all_to_all_single(received, torch.cat([of(rank)] * size))
        same(received, torch.cat([of(other) for other in range(size)]))

    def send_and_recv() -> None:
        if rank == 0:
            dist.send(of(3), 1)
        elif rank == 1:
            received = of(0)
            dist.recv(received, 0)
            same(received, of(3))

    made = (broadcast, all_gather, all_gather_into_tensor, scatter, all_to_all_single, send_and_recv)
    return {one.__name__: one for one in made}


def sums(dtype: torch.dtype, rank: int, size: int) -> dict[str, Callable[[], None]]:
    """What adds: every rank brings ones. A bool's sum is whether any is true."""
    ones, total = torch.ones(2).to(dtype), torch.full((2,), 1 if dtype == torch.bool else size).to(dtype)

    def all_reduce() -> None:
        tensor = ones.clone()
        dist.all_reduce(tensor)
        same(tensor, total)

    def reduce() -> None:
        tensor = ones.clone()
        dist.reduce(tensor, 0)
        same(tensor, total if rank == 0 else ones)

    def reduce_scatter() -> None:
        tensor = torch.zeros(2).to(dtype)
        dist.reduce_scatter(tensor, [ones] * size)
        same(tensor, total)

    def gather() -> None:
        parts = [torch.zeros(2).to(dtype) for _ in range(size)] if rank == 0 else None
        dist.gather(ones, parts, 0)
        for part in parts or []:
            same(part, ones)

    return {one.__name__: one for one in (all_reduce, reduce, reduce_scatter, gather)}


def types_that_can_be_exchanged() -> None:
    rank, size = start()
    for dtype in TYPES:
        for operation in (*moves(dtype, rank, size).values(), *sums(dtype, rank, size).values()):
            operation()
    for operation in (*moves(torch.complex64, rank, size).values(), *sums(torch.complex64, rank, size).values()):
        operation()
    for dtype in MOVED_ONLY:
        for operation in moves(dtype, rank, size).values():
            operation()
        name = str(dtype).removeprefix("torch.")
        with pytest.raises(Error, match=f"{name} cannot be exchanged"):
            dist.all_reduce(torch.zeros(2, dtype=dtype))
        with pytest.raises(Error, match=f"{name} cannot be exchanged"):
            dist.reduce(torch.zeros(2, dtype=dtype), 0)
    sparse = torch.eye(2).to_sparse()
    dist.all_reduce(sparse)
    same(sparse.to_dense(), size * torch.eye(2))
    with pytest.raises(Error, match="to_dense"):
        dist.broadcast(sparse, 0)
    uneven = [torch.zeros(other + 1) for other in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    for other, tensor in enumerate(uneven):
        same(tensor, torch.full((other + 1,), float(other)))
    dist.destroy_process_group()


def compiled_functions() -> None:
    rank, size = start()

    def in_place(values: torch.Tensor) -> torch.Tensor:
        doubled = values * 2
        dist.all_reduce(doubled)
        return doubled + 1

    def chained(values: torch.Tensor) -> torch.Tensor:
        group: Any = dist.group.WORLD
        total = functional.all_reduce(values, "sum", group)
        return functional.all_gather_tensor(total, 0, group) + 1

    own = torch.full((2,), rank + 1.0)
    total = torch.full((2,), size * (size + 1) / 2)
    for backend in ("eager", "aot_eager"):
        same(torch.compile(in_place, backend=backend, fullgraph=True)(own), 2 * total + 1)
        same(torch.compile(chained, backend=backend, fullgraph=True)(own), torch.cat([total] * size) + 1)
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until_there_is(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until, path
        time.sleep(0.02)


def ranks_meet_over_tcp_and_by_the_environment() -> None:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    for kind in ("tcp", "env"):
        announced = Path(f"port.{kind}")
        if rank == 0:
            temporary = announced.with_suffix(".being-written")
            temporary.write_text(str(free_port()))
            temporary.rename(announced)
        until_there_is(announced)
        port = announced.read_text()
        if kind == "tcp":
            start(method=f"tcp://127.0.0.1:{port}")
        else:
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(size))
            dist.init_process_group("gyre")
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor.item() == size
        dist.destroy_process_group()


def messages_that_nobody_receives() -> None:
    """All send before they receive; both ends of a wait have the group's time limit."""
    rank, size = start(timeout_s=2)
    right = (rank + 1) % size
    for call in (lambda: dist.send(torch.ones(2), right), lambda: dist.recv(torch.ones(2), right, tag=9)):
        with pytest.raises(TimeoutError, match=f"rank {right} .* was not done within 2 s"):
            call()
    # What was sent is there still.
    received = torch.zeros(2)
    work = dist.irecv(received, (rank - 1) % size)
    assert work is not None
    work.wait(timedelta(seconds=60))
    same(received, torch.ones(2))
    Path(f"received.{rank}").touch()
    for other in range(size):
        until_there_is(Path(f"received.{other}"))
    dist.destroy_process_group()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_types_pass_or_are_refused_as_the_guide_says(run_ranks: Any, size: int) -> None:
    run_ranks(size, types_that_can_be_exchanged)


@pytest.mark.parametrize("size", [2, 3])
def test_functions_with_collectives_can_be_compiled(run_ranks: Any, size: int) -> None:
    run_ranks(size, compiled_functions)


def test_ranks_meet_wherever_torch_lets_them(run_ranks: Any) -> None:
    run_ranks(2, ranks_meet_over_tcp_and_by_the_environment)


@pytest.mark.parametrize("size", [2, 3])
def test_a_message_that_nobody_receives_fails_after_the_groups_timeout(run_ranks: Any, size: int) -> None:
    run_ranks(size, messages_that_nobody_receives)
