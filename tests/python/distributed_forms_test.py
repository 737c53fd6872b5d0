"""What torch.distributed documents beyond the usual calls: complex and unusual types, bitwise and sparse sums, the
short forms of a process group's methods, and a wrong call of one rank alone."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import gyre.distributed  # noqa: F401  Makes the backend known.
import pytest
import torch
import torch.distributed as dist
from gyre.errors import InvalidArgumentError, MismatchError, UnsupportedError
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def start() -> tuple[int, int]:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    method = f"file://{os.getcwd()}/store"
    limit = timedelta(seconds=60)
    dist.init_process_group("gyre", init_method=method, rank=rank, world_size=size, timeout=limit)
    return rank, size


def same(left: torch.Tensor, right: torch.Tensor) -> None:
    assert left.dtype == right.dtype
    assert torch.equal(left, right), (left, right)


def complex_numbers() -> None:
    rank, size = start()
    own = torch.tensor([[1 + 2j, rank + 0j, -1j]])
    total = sum(torch.tensor([[1 + 2j, other + 0j, -1j]]) for other in range(size))
    assert isinstance(total, torch.Tensor)
    strided = torch.zeros(3, 2, dtype=torch.complex64)[:, :1].t()
    strided.copy_(own)
    for tensor in (own.clone(), strided):
        dist.reduce(tensor, size - 1)
        same(tensor, total if rank == size - 1 else own)
    part = torch.zeros(1, 3, dtype=torch.complex64)
    dist.reduce_scatter(part, [own] * size)
    same(part, total)
    dist.reduce_scatter_tensor(part, own.repeat(size, 1), op=dist.ReduceOp.AVG)
    torch.testing.assert_close(part, total / size)
    parts = [torch.zeros(1, 3, dtype=torch.complex64) for _ in range(size)] if rank == 0 else None
    dist.gather(own, parts, 0)
    same(torch.cat(parts or [total]).sum(0, keepdim=True), total)
    with pytest.raises(InvalidArgumentError, match="MAX has no meaning for complex"):
        dist.reduce(own, 0, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()


def bitwise_operations() -> None:
    rank, size = start()
    for dtype in (torch.uint8, torch.int64, torch.bool):
        everyone = [torch.tensor([1, other % 2, 0]).to(dtype) for other in range(size)]
        own = everyone[rank]
        for operation, function in (
            (dist.ReduceOp.BAND, torch.bitwise_and),
            (dist.ReduceOp.BOR, torch.bitwise_or),
            (dist.ReduceOp.BXOR, torch.bitwise_xor),
        ):
            expected = everyone[0].clone()
            for other in everyone[1:]:
                expected = function(expected, other)
            tensor = own.clone()
            dist.reduce(tensor, 0, op=operation)
            same(tensor, expected if rank == 0 else own)
            part = torch.zeros_like(own)
            dist.reduce_scatter(part, [own] * size, op=operation)
            same(part, expected)
            dist.reduce_scatter_tensor(part.zero_(), own.repeat(size), op=operation)
            same(part, expected)
            pair = [own.clone(), own[:1].clone()]
            dist.all_reduce_coalesced(pair, op=operation)
            same(pair[0], expected)
            same(pair[1], expected[:1])
    # Nobody may have to wait in order to ask.
    late = torch.tensor([rank])
    work = dist.all_reduce(late, op=dist.ReduceOp.BOR, async_op=True) if rank == 0 else None
    if work is not None:
        assert not work.is_completed()
        work.get_future()
    dist.monitored_barrier()
    if work is None:
        dist.all_reduce(late, op=dist.ReduceOp.BOR)
    else:
        work.wait()
    assert late.item() == {2: 1, 3: 3}[size]
    dist.destroy_process_group()


def sparse_sums() -> None:
    rank, size = start()
    indices = torch.tensor([[0, rank + 1, rank + 1]])
    own = torch.sparse_coo_tensor(indices, torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 1.0]]), (size + 1, 2))
    expected = torch.full((size + 1, 2), 0.0)
    expected[0] = torch.tensor([1.0, 2.0]) * size
    expected[1:] = torch.tensor([4.0, 5.0])
    summed = own.clone()
    dist.all_reduce(summed)
    same(summed.to_dense(), expected)
    averaged = own.clone()
    work = dist.all_reduce(averaged, op=dist.ReduceOp.AVG, async_op=True)
    assert work is not None
    same(work.get_future().wait()[0].to_dense(), expected / size)
    nothing = torch.zeros(4).to_sparse()
    dist.all_reduce(nothing)
    assert nothing._nnz() == 0
    with pytest.raises(UnsupportedError, match="MAX is not supported"):
        dist.all_reduce(own, op=dist.ReduceOp.MAX)
    with pytest.raises(MismatchError, match="shapes differ"):
        dist.all_reduce(torch.eye(2 + rank).to_sparse())
    sparse_gradients(rank, size)
    dist.destroy_process_group()


def sparse_gradients(rank: int, size: int) -> None:
    """DDP with a sparse embedding, against one process with everybody's words."""
    torch.manual_seed(3)
    alone, together = (nn.EmbeddingBag(6, 4, sparse=True, mode="sum") for _ in range(2))
    together.load_state_dict(alone.state_dict())
    model = DistributedDataParallel(together)
    words = [torch.tensor([[other, 5], [1, 1]]) for other in range(size)]
    for _ in range(2):
        for network, bags in ((alone, words), (model, [words[rank]])):
            network.zero_grad()
            (sum(network(bag).pow(2).sum() for bag in bags) / len(bags)).backward()
    assert together.weight.grad is not None
    assert alone.weight.grad is not None
    assert together.weight.grad.is_sparse
    torch.testing.assert_close(together.weight.grad.to_dense(), alone.weight.grad.to_dense())


def gathered_by_rank() -> None:
    """all_gather_coalesced: a list for each rank, of a tensor for each input."""
    rank, size = start()
    inputs = [torch.full((2, 2), float(rank)), torch.full((3,), rank + 0.5), torch.tensor(float(rank))]
    outputs = [[torch.zeros_like(tensor) for tensor in inputs] for _ in range(size)]
    dist.all_gather_coalesced(outputs, inputs)
    for other in range(size):
        for output, shape, value in zip(outputs[other], ((2, 2), (3,), ()), (other, other + 0.5, other), strict=True):
            same(output, torch.full(shape, float(value)))
    dist.destroy_process_group()


def short_forms() -> None:
    rank, size = start()
    group: Any = dist.group.WORLD
    ones, total = torch.ones(2), torch.full((2,), float(size))

    def after(work: Any, tensor: torch.Tensor) -> torch.Tensor:
        work.wait()
        return tensor

    tensor = ones.clone()
    same(after(group.allreduce(tensor), tensor), total)
    same(after(group.allreduce([tensor], dist.ReduceOp.MAX), tensor), total)
    same(after(group.allreduce(tensor, op=dist.ReduceOp.MIN, timeout=timedelta(seconds=30)), tensor), total)
    tensor = ones * rank
    same(after(group.broadcast(tensor, 1), tensor), ones)
    same(after(group.broadcast(tensor, root=0), tensor), ones)
    tensor = ones.clone()
    same(after(group.reduce(tensor, 0, dist.ReduceOp.SUM), tensor), total if rank == 0 else ones)
    parts = [torch.zeros(2) for _ in range(size)]
    same(after(group.allgather(parts, ones), torch.stack(parts).sum(0)), torch.zeros(2))
    same(torch.stack(parts).sum(0), total)
    tensor = torch.zeros(2)
    same(after(group.scatter(tensor, [ones] * size if rank == 0 else [], root=0), tensor), ones)
    same(after(group.reduce_scatter(tensor, [ones] * size, op=dist.ReduceOp.SUM), tensor), total)
    group.gather(parts if rank == 0 else [], ones * 2, root=0).wait()
    same(torch.stack(parts).sum(0), total * 2 if rank == 0 else total)
    group.alltoall_base(torch.zeros(size), torch.ones(size), [], [], timedelta(seconds=30)).wait()
    group.barrier(timeout=timedelta(seconds=30)).wait()
    assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=60)
    assert group.get_group_store().add("number", 1) >= 1
    with pytest.raises(TypeError, match="AllreduceOptions"):
        group.allreduce(tensor, "sum")
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    with pytest.raises(InvalidArgumentError, match="only a receive"):
        work._source_rank()
    dist.destroy_process_group()


def pending_messages_hold_up_nothing() -> None:
    """A receive whose message comes last must not keep other futures waiting; operations that are done let go of their
    tensors, though nobody has waited for them."""
    rank, size = start()
    left, right = (rank - 1) % size, (rank + 1) % size
    late, early, total = torch.zeros(1), torch.zeros(1), torch.ones(1)
    receives = [dist.irecv(late, left, tag=1), dist.irecv(early, left, tag=2)]
    futures = [receive.get_future() for receive in receives if receive is not None]
    sent = dist.isend(torch.tensor([5.0]), right, tag=2)
    work = dist.all_reduce(total, async_op=True)
    assert sent is not None
    assert work is not None
    futures += [sent.get_future(), work.get_future()]
    wait_until(lambda: all(future.done() for future in futures[1:]))
    assert not futures[0].done()
    assert (early.item(), total.item()) == (5, size)
    dist.barrier()
    dist.send(torch.tensor([6.0]), right, tag=1)
    assert futures[0].wait()[0].item() == 6
    gone = []
    for _ in range(40):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, async_op=True)
        gone.append(weakref.ref(tensor))
        del tensor
    for _ in range(20):
        dist.barrier()
    assert not [reference for reference in gone if reference() is not None]
    dist.destroy_process_group()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def wrong_calls_of_one_rank() -> None:
    """The last rank's call raises at once; the others, who called rightly, hear of it and do not wait till they time
    out."""
    rank, size = start()
    wrong = rank == size - 1

    def parts(count: int) -> list[torch.Tensor]:
        return [torch.zeros(2) for _ in range(count)]

    count = size + wrong
    calls: list[Callable[[], Any]] = [
        lambda: dist.all_gather(parts(count), torch.zeros(2)),
        lambda: dist.all_gather_into_tensor(torch.zeros(2 * size + wrong), torch.zeros(2)),
        lambda: dist.reduce_scatter(torch.zeros(2), parts(count)),
        lambda: dist.reduce_scatter_tensor(torch.zeros(2), torch.zeros(2 * size + wrong)),
        lambda: dist.all_to_all(parts(count), parts(count)),
        lambda: dist.all_to_all_single(torch.zeros(count), torch.zeros(size), [1] * count, [1] * size),
        lambda: dist.broadcast(torch.zeros(2), size if wrong else 0),
        lambda: dist.reduce(torch.zeros(2), size if wrong else 0),
        lambda: dist.gather(torch.zeros(2), parts(count) if wrong else None, dst=size - 1),
        lambda: dist.scatter(torch.zeros(2), parts(count) if wrong else None, src=size - 1),
        lambda: dist.all_reduce(torch.zeros(2, dtype=torch.uint16 if wrong else torch.float32)),
        lambda: dist.all_reduce(torch.zeros(2, device="meta" if wrong else "cpu")),
        lambda: dist.all_reduce_coalesced([torch.zeros(2, device="meta" if wrong else "cpu") for _ in range(2)]),
    ]
    for number, call in enumerate(calls):
        expected = (InvalidArgumentError, UnsupportedError) if wrong else MismatchError
        with pytest.raises(expected) as failure:
            call()
        assert wrong or "a call that raised an error there on rank" in str(failure.value), (number, failure.value)
    with pytest.raises(MismatchError, match="the root differs"):
        dist.reduce(torch.zeros(2), rank % 2)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)  # The job goes on.
    assert tensor.item() == size
    dist.destroy_process_group()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "body",
    [
        complex_numbers,
        bitwise_operations,
        sparse_sums,
        gathered_by_rank,
        short_forms,
        pending_messages_hold_up_nothing,
        wrong_calls_of_one_rank,
    ],
)
def test_what_torch_documents_is_there(run_ranks: Any, size: int, body: Callable[[], None]) -> None:
    run_ranks(size, body)
