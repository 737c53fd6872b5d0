"""torch.distributed over Gyre must give what it gives over gloo, operation by operation; wrong use one clear error."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import gyre.distributed
import pytest
import torch
import torch.distributed as dist
from gyre.bench.ranks.groups import leave, never_take_apart
from gyre.errors import Error, MismatchError, TimeoutError, UnsupportedError

SEED = 20


def start(store: str = "store", timeout_s: float = 60) -> tuple[int, int]:
    """(rank, size) in a process group of the backend gyre. The store is a file of the test's folder."""
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group(
        "gyre",
        init_method=f"file://{os.getcwd()}/{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout_s),
    )
    return rank, size


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    # Small whole numbers: their sums and products are exact in every order and type.
    return torch.randint(1, 4, shape, generator=generator).to(dtype)


def failure_of(call: Callable[[], Any]) -> tuple[str, str, float]:
    """(class, message, seconds) of what `call` raises."""
    started = time.monotonic()
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - started
    return "nothing", "", time.monotonic() - started


def strided_for(group: Any, tensor: torch.Tensor) -> torch.Tensor:
    """gloo reads and writes a strided tensor's memory as if it were contiguous: it gets a copy that is."""
    return tensor if group is None else tensor.contiguous()


Operation = Callable[[Any, int, int, torch.dtype], list[torch.Tensor]]


def _all_reduce(operation: Any) -> Operation:
    def run(group: Any, rank: int, _: int, dtype: torch.dtype) -> list[torch.Tensor]:
        tensor = values((5, 3), dtype, SEED + rank)
        dist.all_reduce(tensor, op=operation, group=group)
        strided = strided_for(group, values((6, 4), dtype, SEED + rank)[::2, 1:])
        dist.all_reduce(strided, op=operation, group=group)
        return [tensor, strided]

    return run


def _broadcast(group: Any, rank: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    tensors = [values((4,), dtype, SEED + rank), strided_for(group, values((3, 4), dtype, SEED + rank).t())]
    for root, tensor in enumerate(tensors):
        dist.broadcast(tensor, src=root % size, group=group)
    return tensors


def _reduce(group: Any, rank: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    tensor = values((7,), dtype, SEED + rank)
    dist.reduce(tensor, dst=size - 1, group=group)
    return [tensor] if rank == size - 1 else []


def _gathers(group: Any, rank: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    tensor = values((2, 3), dtype, SEED + rank)
    outputs = [torch.zeros(2, 3, dtype=dtype) for _ in range(size)]
    dist.all_gather(outputs, tensor, group=group)
    flat = torch.zeros(2 * size, 3, dtype=dtype)
    dist.all_gather_into_tensor(flat, tensor, group=group)
    stacked = flat.view(size, 2, 3).clone()
    if group is None:  # gloo has no stacked form.
        dist.all_gather_into_tensor(stacked.zero_(), tensor)
    at_root = [torch.zeros(2, 3, dtype=dtype) for _ in range(size)]
    dist.gather(tensor, at_root if rank == 1 else None, dst=1, group=group)
    return [*outputs, flat, stacked, *at_root]


def _scatters(group: Any, rank: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    own = torch.zeros(2, 2, dtype=dtype)
    parts = [values((2, 2), dtype, SEED + other) for other in range(size)]
    dist.scatter(own, parts if rank == 0 else None, src=0, group=group)
    reduced = torch.zeros(2, 2, dtype=dtype)
    dist.reduce_scatter(reduced, parts, group=group)
    flat = torch.zeros(2, 2, dtype=dtype)
    dist.reduce_scatter_tensor(flat, values((2 * size, 2), dtype, SEED + rank), group=group)
    return [own, reduced, flat]


def _all_to_alls(group: Any, rank: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    even = torch.zeros(2 * size, 3, dtype=dtype)
    dist.all_to_all_single(even, values((2 * size, 3), dtype, SEED + rank), group=group)
    send = [rank + other for other in range(size)]  # Rank 0 sends itself nothing.
    rows = values((sum(send), 2), dtype, SEED + rank)
    ragged = torch.zeros(sum(send), 2, dtype=dtype)
    dist.all_to_all_single(ragged, rows, send, send, group=group)
    outputs = [torch.zeros(2, dtype=dtype) for _ in range(size)]
    dist.all_to_all(outputs, [values((2,), dtype, SEED + rank * size + other) for other in range(size)], group=group)
    return [even, ragged, *outputs]


def _messages(group: Any, rank: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    right, left = (rank + 1) % size, (rank - 1) % size
    received = [torch.zeros(4, dtype=dtype) for _ in range(3)]
    sends = [dist.isend(values((4,), dtype, SEED + rank + tag), right, group=group, tag=tag) for tag in range(3)]
    receives = [dist.irecv(received[tag], left, group=group, tag=tag) for tag in (2, 0, 1)]
    for work in [*sends, *receives]:
        work.wait()
    swapped = torch.zeros(3, dtype=dtype)
    operations = [
        dist.P2POp(dist.isend, values((3,), dtype, SEED + rank), right, group=group),
        dist.P2POp(dist.irecv, swapped, left, group=group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    if rank == 0:
        for _ in range(size - 1):
            anybody = torch.zeros(2, dtype=dtype)
            source = dist.recv(anybody, group=group)
            torch.testing.assert_close(anybody, values((2,), dtype, SEED + source))
    else:
        dist.send(values((2,), dtype, SEED + rank), 0, group=group)
    return [*received, swapped]


REDUCTIONS = [dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]
BITWISE = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.float32, torch.float64]
MOVES = [_broadcast, _reduce, _gathers, _scatters, _all_to_alls, _messages]


def everything_as_over_gloo() -> None:
    rank, size = start()
    gloo = dist.new_group(backend="gloo")
    never_take_apart(gloo)
    cases: list[tuple[str, Operation, torch.dtype]] = []
    for operation in REDUCTIONS:
        cases += [(f"all_reduce {operation}", _all_reduce(operation), dtype) for dtype in INTEGERS + FLOATS]
    for operation in BITWISE:
        cases += [(f"all_reduce {operation}", _all_reduce(operation), dtype) for dtype in INTEGERS]
    for move in MOVES:
        cases += [(move.__name__, move, dtype) for dtype in (torch.int64, torch.float32, torch.uint8)]
    for name, operation, dtype in cases:
        expected = operation(gloo, rank, size, dtype)
        actual = operation(None, rank, size, dtype)
        for left, right in zip(expected, actual, strict=True):
            assert torch.equal(left, right), (name, dtype, left, right)
    dist.destroy_process_group()
    leave()


def as_they_are_meant() -> None:
    """Without gloo, which lacks some: averages, scaled sums, bfloat16, bool, coalesced forms, futures, objects."""
    rank, size = start()
    everyone = [values((6,), torch.float32, SEED + other) for other in range(size)]
    total = torch.stack(everyone).sum(0)
    tensor = everyone[rank].clone()
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    torch.testing.assert_close(tensor, total / size)
    tensor = everyone[rank].clone()
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))  # type: ignore[attr-defined]
    assert torch.equal(tensor, total / 2)
    half = everyone[rank].bfloat16()
    dist.all_reduce(half)
    assert torch.equal(half, total.bfloat16())
    flag = torch.tensor([rank == 0, False, True])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    assert flag.tolist() == [True, False, True]
    part = torch.zeros(2)
    source = torch.arange(2.0 * size) + rank
    dist.reduce_scatter_tensor(part, source, op=dist.ReduceOp.AVG)
    torch.testing.assert_close(part, torch.arange(2.0 * size)[2 * rank : 2 * rank + 2] + (size - 1) / 2)
    # As FSDP calls them: the input is a part of the output, and the other way round.
    gathered = torch.full((size, 6), -1.0)
    gathered[rank] = everyone[rank]
    dist.all_gather_into_tensor(gathered, gathered[rank])
    assert torch.equal(gathered, torch.stack(everyone))
    source = torch.arange(2.0 * size)
    dist.reduce_scatter_tensor(source[2 * rank : 2 * rank + 2], source)
    assert torch.equal(source[2 * rank : 2 * rank + 2], size * torch.arange(2.0 * size)[2 * rank : 2 * rank + 2])
    lists_of_neighbours(rank, size)
    futures_and_coalesced(rank, size, total, everyone)
    objects(rank, size)
    dist.destroy_process_group()


def lists_of_neighbours(rank: int, size: int) -> None:
    """FSDP1 gathers into the chunks of one tensor. Chunks in another order, or with gaps, are no such memory."""
    for elements in (3, 400, 100_000):
        everyone = [values((elements,), torch.float32, SEED + other) for other in range(size)]
        for asynchronous in (False, True):
            whole = torch.zeros(size * elements)
            wide = torch.zeros(size, elements + 1)
            for outputs in (list(whole.chunk(size)), list(whole.chunk(size))[::-1], [row[1:] for row in wide]):
                work = dist.all_gather(outputs, everyone[rank], async_op=asynchronous)
                if work is not None:
                    work.wait()
                for output, expected in zip(outputs, everyone, strict=True):
                    assert torch.equal(output, expected)
            assert wide[:, 0].tolist() == [0] * size
            exchanged = torch.zeros(size, elements)
            sent = torch.stack([everyone[rank] + other for other in range(size)])
            work = dist.all_to_all(list(exchanged), list(sent), async_op=asynchronous)
            if work is not None:
                work.wait()
            assert torch.equal(exchanged, torch.stack(everyone) + rank)
            with torch.no_grad():
                parameter = torch.nn.Parameter(torch.zeros(size, elements))
                dist.all_gather(list(parameter), everyone[rank])
            assert torch.equal(parameter.detach(), torch.stack(everyone))


def futures_and_coalesced(rank: int, size: int, total: torch.Tensor, everyone: list[torch.Tensor]) -> None:
    tensor = everyone[rank].clone()
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    doubled = work.get_future().then(lambda future: [2 * part for part in future.value()])
    assert torch.equal(doubled.wait()[0], 2 * total)
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert torch.equal(work.result()[0], total)
    with dist._coalescing_manager() as manager:  # type: ignore[attr-defined]
        pair = [everyone[rank].clone(), everyone[rank].clone() + 1]
        for one in pair:
            dist.all_reduce(one)
    manager.wait()
    assert torch.equal(pair[0], total)
    assert torch.equal(pair[1], total + size)
    outputs = [torch.zeros(size * 6), torch.zeros(size * 2)]
    with dist._coalescing_manager(async_ops=True) as manager:  # type: ignore[attr-defined]
        dist.all_gather_into_tensor(outputs[0], everyone[rank])
        dist.all_gather_into_tensor(outputs[1], everyone[rank][:2])
    manager.wait()
    assert torch.equal(outputs[0], torch.cat(everyone))
    assert torch.equal(outputs[1], torch.cat([one[:2] for one in everyone]))
    dist.barrier()
    late = dist.barrier(async_op=True)
    assert late is not None
    late.wait()


def objects(rank: int, size: int) -> None:
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    assert gathered == [{"rank": other} for other in range(size)]
    shared: list[Any] = ["x", {"a": 1}] if rank == 0 else [None, None]
    dist.broadcast_object_list(shared, src=0)
    assert shared == ["x", {"a": 1}]
    at_root: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(rank * 10, at_root, dst=0)
    assert at_root is None or at_root == [10 * other for other in range(size)]
    own: list[Any] = [None]
    dist.scatter_object_list(own, [f"for {other}" for other in range(size)] if rank == 0 else None, src=0)
    assert own == [f"for {rank}"]


def groups_of_some() -> None:
    rank, size = start()
    evens = dist.new_group(list(range(0, size, 2)))
    odds = dist.new_group(list(range(1, size, 2)))
    mine = evens if rank % 2 == 0 else odds
    tensor = torch.tensor([rank])
    dist.all_reduce(tensor, group=mine)
    assert tensor.item() == sum(range(rank % 2, size, 2))
    last_two = dist.new_group([size - 1, size - 2])
    if rank >= size - 2:
        tensor = torch.tensor([rank])
        dist.broadcast(tensor, src=size - 2, group=last_two)
        assert tensor.item() == size - 2
        other = size - 1 if rank == size - 2 else size - 2
        if rank == size - 1:
            dist.send(torch.tensor([7]), other, group=last_two)
        else:
            dist.recv(tensor, other, group=last_two)
            assert tensor.item() == 7
    dist.destroy_process_group(mine)
    dist.barrier()
    dist.destroy_process_group()
    # And once more in the same processes, with another store.
    dist.init_process_group("gyre", init_method=f"file://{os.getcwd()}/again", rank=rank, world_size=size)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size
    dist.destroy_process_group()


def wrong_use_is_one_clear_error() -> None:
    rank, size = start()
    group = dist.group.WORLD
    kind, message, _ = failure_of(lambda: dist.all_reduce(torch.zeros(2, device="meta")))
    assert (kind, "device 'meta'" in message) == (UnsupportedError.__name__, True), message
    kind, message, _ = failure_of(lambda: dist.broadcast(torch.zeros(2).to_sparse(), 0))
    assert "to_dense" in message, (kind, message)
    kind, message, _ = failure_of(lambda: dist.broadcast(torch.zeros(2, dtype=torch.complex64), 0, group=group))
    kind, message, _ = failure_of(lambda: dist.all_reduce(torch.zeros(2, dtype=torch.uint16)))
    assert "uint16 cannot be exchanged" in message, (kind, message)
    kind, message, _ = failure_of(lambda: dist.all_to_all_single(torch.zeros(size), torch.zeros(size), [1], [1]))
    assert kind == "InvalidArgumentError", (kind, message)
    assert "splits [1] do not divide" in message, message
    kind, message, _ = failure_of(lambda: dist.all_reduce(torch.zeros(2 + rank)))
    assert (kind, "shape" in message) == (MismatchError.__name__, True), message
    kind, message, _ = failure_of(lambda: dist.all_reduce(torch.zeros(2, dtype=[torch.float32, torch.int32][rank % 2])))
    assert (kind, "float32" in message, "int32" in message) == (MismatchError.__name__, True, True), message
    kind, message, _ = failure_of(lambda: dist.barrier() if rank == 0 else dist.all_reduce(torch.zeros(1)))
    assert (kind, "barrier" in message, "allreduce" in message) == (MismatchError.__name__, True, True), message
    splits = [2] + [1] * (size - 1)
    wrong = [torch.zeros(sum(splits)), torch.zeros(sum(splits))]
    kind, message, _ = failure_of(lambda: dist.all_to_all_single(*wrong, splits, splits))
    assert (kind, "output splits" in message) == (MismatchError.__name__, True), message
    wrong_splits_of_one_rank(rank, size)
    kind, message, _ = failure_of(lambda: dist.init_process_group("gyre"))
    assert kind == "ValueError", (kind, message)
    dist.destroy_process_group()
    a_rank_that_does_not_come()


def wrong_splits_of_one_rank(rank: int, size: int) -> None:
    """Only the last rank has them, and all are told."""
    one_each = [1] * size
    expected = [2, *one_each[1:]] if rank == size - 1 else one_each
    tensors = [torch.zeros(sum(expected)), torch.zeros(size)]
    kind, message, seconds = failure_of(lambda: dist.all_to_all_single(*tensors, expected, one_each))
    assert f"rank 0 sends 1 elements to rank {size - 1}, which expects 2" in message, message
    assert (kind, seconds < 10) == (MismatchError.__name__, True), (kind, seconds)
    parts = [torch.zeros(2) for _ in range(size)] if rank == 0 else None
    larger = torch.zeros(2 + (rank == size - 1))
    kind, message, _ = failure_of(lambda: dist.gather(larger, parts, 0))
    assert (kind, "sends 3 elements to rank 0" in message) == (MismatchError.__name__, True), message
    good = [torch.zeros(size), torch.zeros(size)]  # The job goes on.
    dist.all_to_all_single(*good, one_each, one_each)


def a_rank_that_does_not_come() -> None:
    """It comes when the others have given up: at the barrier after 2 s, at the sum after the 4 s of their group."""
    rank, size = start("another", timeout_s=4)
    if rank == size - 1:
        for other in range(size - 1):
            until_there_is(Path(f"given-up.{other}"))
    else:
        kind, message, _ = failure_of(lambda: dist.monitored_barrier(timeout=timedelta(seconds=2)))
        assert kind == TimeoutError.__name__ or rank != 0, message
        assert f"Rank {size - 1} failed to pass monitoredBarrier" in message, message
    kind, message, seconds = failure_of(lambda: dist.all_reduce(torch.zeros(1)))
    assert kind != "nothing"
    assert f"rank {size - 1}" in message or rank == size - 1, message
    assert seconds < 10
    Path(f"given-up.{rank}").touch()


def until_there_is(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until, path
        time.sleep(0.02)


def an_exception_on_one_rank_reaches_the_others() -> None:
    rank, _ = start()
    dist.barrier()  # Otherwise the exception may reach a rank that has not finished init_process_group.
    if rank == 1:
        raise ArithmeticError("division by cucumber")
    kind, message, seconds = failure_of(lambda: dist.all_reduce(torch.zeros(1)))
    assert (kind, "cucumber" in message, seconds < 10) == ("AbortedError", True, True), (kind, message, seconds)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_operation_gives_what_gloo_gives(run_ranks: Any, size: int) -> None:
    run_ranks(size, everything_as_over_gloo)


@pytest.mark.parametrize("size", [2, 3])
def test_averages_futures_coalesced_forms_and_objects(run_ranks: Any, size: int) -> None:
    run_ranks(size, as_they_are_meant)


def test_new_groups_have_ranks_and_ends_of_their_own(run_ranks: Any) -> None:
    run_ranks(4, groups_of_some)


@pytest.mark.parametrize("size", [2, 3])
def test_wrong_use_fails_on_every_rank_within_ten_seconds(run_ranks: Any, size: int) -> None:
    run_ranks(size, wrong_use_is_one_clear_error)


def test_an_exception_on_one_rank_fails_the_others_with_its_words(run_ranks: Any) -> None:
    outcomes = run_ranks(3, an_exception_on_one_rank_reaches_the_others, check=False)
    assert [outcome.code for outcome in outcomes] == [0, 1, 0], outcomes


def test_the_backend_is_known_by_name() -> None:
    assert "gyre" in dist.Backend.backend_list
    assert issubclass(gyre.distributed.ProcessGroup, dist.ProcessGroup)
    assert issubclass(MismatchError, Error)
