"""What a Horovod-shaped API owes its users beyond the plain operations: process sets, join, every form of every
operation, and wrong use that ends in an error instead of a hang."""

import copy
import io
import pickle
from collections import OrderedDict
from pathlib import Path

import gyre.torch as hvd
import numpy
import pytest
import torch
from checks import each, run_each
from expectations import check, fails_with
from gyre.errors import Error, InvalidArgumentError, MismatchError, UnsupportedError
from gyre.torch import adaptive_sum
from torch import nn

SIZES = [2, 3, 4]


# --- every form of every operation --------------------------------------------------------------------------------


def grouped_allgather_and_reducescatter() -> None:
    rank, size = hvd.rank(), hvd.size()
    own = [torch.full((rank + 1, 2), float(rank)), torch.arange(3) + rank, torch.tensor(float(rank))]
    wanted = [
        torch.cat([torch.full((r + 1, 2), float(r)) for r in range(size)]),
        torch.cat([torch.arange(3) + r for r in range(size)]),
        torch.arange(float(size)),
    ]
    for results in (hvd.grouped_allgather(own, name="gg"), hvd.synchronize(hvd.grouped_allgather_async(own))):
        for result, right in zip(results, wanted, strict=True):
            check(result, right)
    rows = [torch.ones(2 * size + 1, 2) * (rank + 1), torch.arange(float(size)) + rank]
    total = size * (size + 1) / 2
    for results in (
        hvd.grouped_reducescatter(rows, op=hvd.Sum),
        hvd.synchronize(hvd.grouped_reducescatter_async(rows, name="gr", op=hvd.Sum)),
    ):
        check(results[0], torch.full((3 if rank == 0 else 2, 2), total))
        check(results[1], torch.tensor([float(rank * size + sum(range(size)))]))
    check(hvd.grouped_reducescatter(rows)[0], torch.full((3 if rank == 0 else 2, 2), total / size))


def gradients_of_grouped_operations() -> None:
    rank, size = hvd.rank(), hvd.size()
    tensors = [torch.ones(rank + 1, requires_grad=True), torch.ones(2, requires_grad=True)]
    first, second = hvd.grouped_allgather(tensors)
    ((first * (rank + 1)).sum() + second.sum()).backward()
    check(tensors[0].grad, torch.full((rank + 1,), (size + 1) / 2))
    check(tensors[1].grad, torch.ones(2))
    shares = [torch.ones(size, requires_grad=True), torch.ones(2 * size, requires_grad=True)]
    one, two = hvd.grouped_reducescatter(shares, op=hvd.Sum)
    (one.sum() * (rank + 1) + two.sum()).backward()
    check(shares[0].grad, size * (torch.arange(float(size)) + 1))
    check(shares[1].grad, torch.full((2 * size,), float(size)))


def bfloat16_everywhere() -> None:
    rank, size = hvd.rank(), hvd.size()
    own = torch.full((5,), float(rank + 1), dtype=torch.bfloat16)
    total = float(size * (size + 1) // 2)
    check(hvd.allreduce(own, op=hvd.Sum), torch.full((5,), total, dtype=torch.bfloat16))
    check(hvd.reducescatter(own.expand(size, 5), op=hvd.Sum), torch.full((1, 5), total, dtype=torch.bfloat16))
    assert hvd.allgather(own).dtype == torch.bfloat16


def sparse_sums() -> None:
    rank, size = hvd.rank(), hvd.size()
    dense = torch.zeros(size + 1, 3)
    dense[rank] = rank + 1.0
    dense[size] = 1.0
    wanted = torch.zeros(size + 1, 3)
    wanted[:size] = torch.arange(1.0, size + 1).unsqueeze(1)
    wanted[size] = float(size)
    for result in (
        hvd.sparse_allreduce_async(dense.to_sparse(1), name="s", op=hvd.Sum).wait(),
        hvd.sparse_allreduce_async(dense.to_sparse(1), name="s", op=hvd.Sum)(),
        hvd.allreduce(dense.to_sparse(), op=hvd.Sum),
        hvd.synchronize(hvd.allreduce_async(dense.to_sparse(1), op=hvd.Sum)),
    ):
        assert result.is_sparse
        check(result.to_dense(), wanted)
    check(hvd.sparse_allreduce_async(dense.to_sparse(1), op=hvd.Average).wait().to_dense(), wanted / size)
    nothing = torch.zeros(4, 3).to_sparse(1)
    check(hvd.sparse_allreduce_async(nothing, op=hvd.Sum).wait().to_dense(), torch.zeros(4, 3))
    fails_with(UnsupportedError, lambda: hvd.allreduce(dense.to_sparse(), op=hvd.Max))
    fails_with(ValueError, lambda: hvd.sparse_allreduce_async(dense))
    if hvd.size() > 1:
        other = torch.zeros(size + 1 + rank, 3).to_sparse(1)
        assert "shapes" in fails_with(MismatchError, lambda: hvd.sparse_allreduce_async(other, op=hvd.Sum).wait())


def adaptive_sums() -> None:
    rank, size = hvd.rank(), hvd.size()
    everybody = [torch.randn(7, generator=torch.Generator().manual_seed(r)) for r in range(size)]
    wanted = adaptive_sum.combine(everybody).float()
    check(hvd.allreduce(everybody[rank], op=hvd.Adasum), wanted)
    check(hvd.allreduce_async(everybody[rank], name="ada", op=hvd.Adasum).wait(), wanted)
    target = everybody[rank].clone().reshape(1, 7)
    assert hvd.allreduce_(target, op=hvd.Adasum) is target
    check(target[0], wanted)
    equal = torch.tensor([1.0, 2.0])
    check(hvd.allreduce(equal, op=hvd.Adasum), equal)  # What all agree in counts once.
    apart = torch.zeros(size)
    apart[rank] = 3.0
    check(hvd.grouped_allreduce([apart, equal], op=hvd.Adasum)[0], torch.full((size,), 3.0))
    check(hvd.allreduce(torch.zeros(3, dtype=torch.float16), op=hvd.Adasum), torch.zeros(3, dtype=torch.float16))
    fails_with(ValueError, lambda: hvd.allreduce(torch.arange(3), op=hvd.Adasum))
    fails_with(ValueError, lambda: hvd.reducescatter(torch.ones(size), op=hvd.Adasum))


def objects() -> None:
    rank, size = hvd.rank(), hvd.size()
    thing = {"a": [1, 2.5, None], 3: (numpy.arange(4.0), torch.tensor([1])), "s": {1, 2}, "x": b"\0", "l": rank}
    for root in range(size):
        got = hvd.broadcast_object(thing, root)
        assert got["l"] == root
        assert got["s"] == {1, 2}
        assert isinstance(got[3][0], numpy.ndarray)
        assert got[3][0].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [got["l"] for got in hvd.allgather_object(thing)] == list(range(size))
    fails_with(InvalidArgumentError, lambda: hvd.broadcast_object(OrderedDict, 0))
    assert hvd.broadcast_object(Path("/x") if rank == 0 else None, 0, allow_pickle=True) == Path("/x")
    if rank != 0:  # Who has not allowed it does not unpickle.
        assert "allow_pickle" in fails_with(InvalidArgumentError, lambda: hvd.broadcast_object(None, 0))
    else:
        hvd.broadcast_object(Path("/x"), 0, allow_pickle=True)


def batch_norm_over_all_ranks() -> None:
    rank, size = hvd.rank(), hvd.size()
    for shape in ((4,), (4, 3), (4, 2, 5)):
        parts = [torch.randn(2 + r, *shape, generator=torch.Generator().manual_seed(r)) + r for r in range(size)]
        weights = [torch.randn(part.shape, generator=torch.Generator().manual_seed(9)) for part in parts]
        whole = torch.cat(parts).requires_grad_()
        reference = {1: nn.BatchNorm1d, 2: nn.BatchNorm1d, 3: nn.BatchNorm2d}[len(shape)](4)
        synced = hvd.SyncBatchNorm(4)
        own = parts[rank].clone().requires_grad_()
        expected = reference(whole)
        (expected * torch.cat(weights)).sum().backward()
        result = synced(own)
        (result * weights[rank]).sum().backward()
        first = sum(len(part) for part in parts[:rank])
        here = slice(first, first + len(parts[rank]))
        torch.testing.assert_close(result, expected[here], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(own.grad, whole.grad[here], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(synced.running_mean, reference.running_mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(synced.running_var, reference.running_var, rtol=1e-5, atol=1e-6)
        weight = hvd.allreduce(synced.weight.grad, op=hvd.Sum)
        torch.testing.assert_close(weight, reference.weight.grad, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(synced.eval()(own), reference.eval()(whole)[here], rtol=1e-4, atol=1e-5)
    wrong = (torch.ones(3), torch.ones(2, 4), torch.ones(2, 3, dtype=torch.int32))
    for tensor in wrong:
        fails_with(ValueError, lambda tensor=tensor: hvd.SyncBatchNorm(3)(tensor))
    assert hvd.SyncBatchNorm(3)(torch.randn(4, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16
    kept = io.BytesIO()
    torch.save(hvd.SyncBatchNorm(3), kept)
    kept.seek(0)
    for twin in (copy.deepcopy(hvd.SyncBatchNorm(3)), torch.load(kept, weights_only=False)):
        assert twin.process_set is hvd.global_process_set
        twin(torch.randn(4, 3))


# --- process sets -------------------------------------------------------------------------------------------------


def sets_exchange_among_themselves() -> None:
    rank, size = hvd.rank(), hvd.size()
    even = hvd.add_process_set(range(0, size, 2))
    odd = hvd.add_process_set(hvd.ProcessSet(list(range(1, size, 2))))
    assert (even.process_set_id, odd.process_set_id) == (1, 2)
    mine, ranks = (even, even.ranks) if rank % 2 == 0 else (odd, odd.ranks)
    other = odd if mine is even else even
    assert mine.included()
    assert not other.included()
    assert mine.rank() == rank // 2
    fails_with(ValueError, other.rank)
    assert mine.size() == len(ranks)
    total = torch.tensor([float(sum(ranks))])
    own = torch.tensor([float(rank)])
    check(hvd.allreduce(own, op=hvd.Sum, process_set=mine), total)
    check(hvd.allreduce(own, process_set=mine, name="same"), total / len(ranks))
    check(hvd.grouped_allreduce([own, own], op=hvd.Max, process_set=mine)[1], torch.tensor([float(max(ranks))]))
    check(hvd.allgather(own, process_set=mine), torch.tensor([float(r) for r in ranks]))
    check(hvd.grouped_allgather([own], process_set=mine)[0], torch.tensor([float(r) for r in ranks]))
    check(hvd.broadcast(own, ranks[-1], process_set=mine), torch.tensor([float(ranks[-1])]))
    spread = torch.full((len(ranks),), float(rank))
    check(hvd.alltoall(spread, process_set=mine), torch.tensor([float(r) for r in ranks]))
    check(hvd.reducescatter(spread, op=hvd.Sum, process_set=mine), total)
    check(hvd.allreduce(own, op=hvd.Adasum, process_set=mine).isfinite(), torch.tensor([True]))
    assert hvd.broadcast_object(rank, ranks[0], process_set=mine) == ranks[0]
    assert hvd.allgather_object(rank, process_set=mine) == ranks
    hvd.barrier(process_set=mine)
    with torch.enable_grad():
        leaf = torch.ones(2, requires_grad=True)
        (hvd.allreduce(leaf, op=hvd.Sum, process_set=mine) * (rank + 1)).sum().backward()
        check(leaf.grad, torch.full((2,), float(sum(r + 1 for r in ranks))))
        leaf = torch.ones(1, requires_grad=True)
        (hvd.allgather(leaf, process_set=mine) * (rank + 1)).sum().backward()
        check(leaf.grad, torch.tensor([sum(r + 1 for r in ranks) / len(ranks)]))
        leaf = torch.ones(len(ranks), requires_grad=True)
        hvd.reducescatter(leaf, op=hvd.Sum, process_set=mine).sum().backward()
        check(leaf.grad, torch.full((len(ranks),), float(len(ranks))))
    assert copy.deepcopy(mine) is mine
    assert pickle.loads(pickle.dumps(mine)) is mine
    wrong_use_of_sets(mine, other)
    training_in_a_set(mine, len(ranks))
    assert hvd.remove_process_set(odd)
    assert not hvd.remove_process_set(odd)
    assert not hvd.remove_process_set(hvd.global_process_set)
    assert odd.process_set_id is None
    fails_with(ValueError, lambda: hvd.allreduce(own, process_set=odd))
    again = hvd.add_process_set(range(1, size, 2))
    assert again.process_set_id == 3
    if again.included():
        hvd.barrier(process_set=again)
    for left in (even, again):
        assert hvd.remove_process_set(left)
    check(hvd.allreduce(own, op=hvd.Sum), torch.tensor([float(sum(range(size)))]))


def wrong_use_of_sets(mine: hvd.ProcessSet, other: hvd.ProcessSet) -> None:
    own = torch.ones(1)
    assert "not in the process set" in fails_with(ValueError, lambda: hvd.allreduce(own, process_set=other))
    fails_with(ValueError, lambda: hvd.broadcast(own, other.ranks[0], process_set=mine))
    fails_with(ValueError, lambda: hvd.allreduce(own, process_set=hvd.ProcessSet([0])))
    fails_with(ValueError, lambda: hvd.add_process_set([0, hvd.size()]))
    fails_with(ValueError, lambda: hvd.add_process_set(range(0, hvd.size(), 2)))
    fails_with(ValueError, lambda: hvd.add_process_set(range(hvd.size())))
    fails_with(ValueError, lambda: hvd.ProcessSet([0, 0]))
    fails_with(ValueError, lambda: hvd.ProcessSet([0.5]))
    fails_with(ValueError, lambda: hvd.remove_process_set([0]))
    assert "disagree" in fails_with(MismatchError, lambda: hvd.add_process_set([hvd.rank()]))
    assert hvd.global_process_set.size() == hvd.size()
    assert hvd.global_process_set.rank() == hvd.rank()


def training_in_a_set(process_set: hvd.ProcessSet, size: int) -> None:
    torch.manual_seed(hvd.rank())
    network = nn.Linear(3, 2)
    root = process_set.ranks[0]
    hvd.broadcast_parameters(network.state_dict(), root, process_set)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, network.named_parameters(), process_set=process_set)
    hvd.broadcast_optimizer_state(optimizer, root, process_set=process_set)
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.full((1, 3), float(hvd.rank()))).sum().backward()
        optimizer.step()
        check(network.bias.grad, torch.ones(2))
        check(network.weight.grad, torch.full((2, 3), sum(process_set.ranks) / size))
    weights = hvd.allgather(network.weight.detach().reshape(1, -1), process_set=process_set)
    assert bool((weights == weights[0]).all())


# --- join ---------------------------------------------------------------------------------------------------------


def unequal_batches() -> None:
    rank, size = hvd.rank(), hvd.size()
    for batch in range(rank):
        present = [r for r in range(size) if r > batch]
        own = torch.tensor([rank + 1.0])
        check(hvd.allreduce(own, op=hvd.Sum), torch.tensor([sum(r + 1.0 for r in present)]))
        check(hvd.allreduce(own, name="named"), torch.tensor([sum(r + 1.0 for r in present) / size]))
        check(hvd.allreduce(own, op=hvd.Min), torch.tensor([min(present) + 1.0]))
        check(hvd.allreduce(own.int(), op=hvd.Max), torch.tensor([size], dtype=torch.int32))
        results = hvd.grouped_allreduce([own, own.half()], op=hvd.Sum)
        check(results[1], torch.tensor([sum(r + 1.0 for r in present)], dtype=torch.float16))
        hvd.barrier()
    assert hvd.join() == size - 1
    check(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(size)]))


def other_operations_while_a_rank_has_joined() -> None:
    rank, size = hvd.rank(), hvd.size()
    own = torch.tensor([float(rank)])
    if rank != 0:
        for call in (
            lambda: hvd.allgather(own),
            lambda: hvd.broadcast(own, size - 1),
            lambda: hvd.reducescatter(torch.ones(size)),
            lambda: hvd.alltoall(torch.ones(size)),
        ):
            assert "rank 0 has joined" in fails_with(RuntimeError, call)
    assert hvd.join() in range(size)
    if rank == 0:
        hvd.join(every_operation=True, divide_by_contributors=True)
        return
    check(hvd.allgather(own), torch.arange(1.0, size))
    check(hvd.broadcast(own, size - 1), torch.tensor([size - 1.0]))
    check(hvd.reducescatter(torch.ones(size), op=hvd.Sum), torch.tensor([size - 1.0]))
    result, received = hvd.alltoall(torch.arange(float(size)), [1] * size)
    check(result, torch.full((size - 1,), float(rank)))
    assert received.tolist() == [0] + [1] * (size - 1)
    check(hvd.allreduce(own), torch.tensor([sum(range(size)) / (size - 1)]))
    assert "the root" in fails_with(RuntimeError, lambda: hvd.broadcast(own, 0))
    hvd.join()


def training_with_unequal_batches() -> None:
    rank, size = hvd.rank(), hvd.size()
    nothing_to_train_with()
    network = nn.Linear(2, 1, bias=False)
    nn.init.ones_(network.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=1.0), network.named_parameters())
    for step in range(rank + 1):
        optimizer.zero_grad()
        network(torch.ones(1, 2)).sum().backward()
        if step == 0:
            fails_with(InvalidArgumentError, hvd.join)  # Not in the middle of a step.
        optimizer.step()
        present = sum(1 for r in range(size) if r >= step)
        check(network.weight.grad, torch.full((1, 2), present / size))
    last = hvd.join()
    assert last == size - 1
    hvd.broadcast_parameters(network.state_dict(), last)
    check(network.weight.detach(), torch.full((1, 2), 1.0 - (size + 1) / 2))


def nothing_to_train_with() -> None:
    """A rank that has no batch at all: the others' first step is the one that makes the optimizer's plan."""
    rank, size = hvd.rank(), hvd.size()
    network = nn.Linear(2, 1, bias=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=1.0), network.named_parameters())
    for step in range(2 if rank != 0 else 0):
        optimizer.zero_grad()
        network(torch.full((1, 2), step + 1.0)).sum().backward()
        optimizer.step()
        check(network.weight.grad, torch.full((1, 2), (step + 1.0) * (size - 1) / size))
    hvd.join()


# --- optimizer ----------------------------------------------------------------------------------------------------


def optimizer_arguments() -> None:
    size = hvd.size()
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    parameters = list(network.parameters())

    def make(**options: object) -> torch.optim.Optimizer:
        return hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), network.named_parameters(), **options)

    for options in ({"groups": 2}, {"groups": [parameters[:2]]}, {"gradient_predivide_factor": 2.0}):
        optimizer = make(**options)
        optimizer.zero_grad(set_to_none=False)
        network(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        check(parameters[3].grad, torch.ones(1))
    with pytest.warns(DeprecationWarning, match="groups"):
        make(num_groups=1)
    fails_with(ValueError, lambda: make(groups=[["weight"]]))
    fails_with(ValueError, lambda: make(groups=-1))
    fails_with(ValueError, lambda: make(op=hvd.Max))
    # Adasum: every rank steps, the changes are combined; equal changes count once.
    network.zero_grad()
    before = parameters[3].detach().clone()
    optimizer = make(op=hvd.Adasum)
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    check(parameters[3].detach(), before - 0.1)
    value = float(parameters[3].detach())
    assert hvd.allgather_object(value) == [value] * size


def mixed_precision() -> None:
    rank = hvd.rank()
    for scaler_class in (hvd.GradScaler, torch.amp.GradScaler):
        network = nn.Linear(2, 1, bias=False)
        nn.init.ones_(network.weight)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
        optimizer = hvd.DistributedOptimizer(optimizer, network.named_parameters())
        scaler = scaler_class("cpu", init_scale=8.0)
        for step, factor in enumerate((1.0, float("inf") if rank == 0 else 1.0, 1.0)):
            optimizer.zero_grad()
            before = network.weight.detach().clone()
            scaler.scale(network(torch.full((1, 2), factor)).sum()).backward()
            if scaler_class is torch.amp.GradScaler:  # Horovod's recipe.
                optimizer.synchronize()
                scaler.unscale_(optimizer)
                with optimizer.skip_synchronize():
                    scaler.step(optimizer)
            else:
                if step == 2:
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
            scaler.update()
            # One rank's infinity makes all of them skip the step.
            check(network.weight.detach(), before if step == 1 else before - 0.5)
            assert scaler.get_scale() == (8.0 if step == 0 else 4.0)


# --- the rest -----------------------------------------------------------------------------------------------------


def wrong_use() -> None:
    """Each is refused at once, on every rank, and the job goes on."""
    rank, size = hvd.rank(), hvd.size()
    fails_with(RuntimeError, lambda: hvd.allreduce(torch.ones(2, device="meta")))
    fails_with(ValueError, lambda: hvd.alltoall(torch.ones(size), [1] * (size - 1)))
    fails_with(ValueError, lambda: hvd.alltoall(torch.ones(size), [2] * size))
    fails_with(RuntimeError, lambda: hvd.allreduce(torch.ones(2 + rank), name="shape"))
    fails_with(RuntimeError, lambda: hvd.broadcast(torch.ones(2), rank, name="root"))
    scale = lambda: hvd.allreduce(torch.ones(2), name="scale", prescale_factor=1.0 + rank)  # noqa: E731
    fails_with(RuntimeError, scale)
    hvd.init()  # A second one does nothing.
    fails_with(Error, lambda: hvd.reducescatter(torch.tensor(1.0)))
    check(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(size)]))


def starting_again() -> None:
    size, rank = hvd.size(), hvd.rank()
    static = hvd.ProcessSet([0])
    for _ in range(2):
        hvd.shutdown()
        assert not hvd.is_initialized()
        fails_with(Error, hvd.rank)
        hvd.init(process_sets=[static])
        assert (hvd.size(), hvd.rank()) == (size, rank)
        assert static.process_set_id == 1
        if static.included():
            check(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=static), torch.ones(1))
        check(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(size)]))


OPERATIONS = [
    grouped_allgather_and_reducescatter,
    gradients_of_grouped_operations,
    bfloat16_everywhere,
    sparse_sums,
    adaptive_sums,
    objects,
    batch_norm_over_all_ranks,
    wrong_use,
]
GROUPS = [
    sets_exchange_among_themselves,
    unequal_batches,
    other_operations_while_a_rank_has_joined,
    training_with_unequal_batches,
    optimizer_arguments,
    mixed_precision,
    starting_again,
]


EVERYTHING = [*OPERATIONS, *GROUPS]


def body_everything() -> None:
    hvd.init()
    run_each(EVERYTHING)


@pytest.mark.parametrize("size", SIZES)
@each(EVERYTHING)
def test_what_horovods_users_rely_on(run_checks, size, check):
    run_checks(size, body_everything, check)


def joins_and_makes_no_set_alone() -> None:
    assert hvd.join() == 0
    fails_with(ValueError, lambda: hvd.add_process_set([0]))


ALONE = [joins_and_makes_no_set_alone, adaptive_sums, sparse_sums, optimizer_arguments, batch_norm_over_all_ranks]


def body_alone() -> None:
    hvd.init()
    run_each(ALONE)


@each(ALONE)
def test_a_rank_alone_can_do_all_that(run_checks, check):
    run_checks(1, body_alone, check)


def body_never_joins() -> None:
    hvd.init()
    if hvd.rank() == 0:
        return
    assert "rank 0" in fails_with(Error, hvd.join)


def test_a_rank_that_never_joins_ends_the_others_wait_when_it_ends(run_ranks):
    run_ranks(3, body_never_joins)
