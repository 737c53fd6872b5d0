"""Sparse gradients travel by their rows: the sums must be those of whole tables, and every rank's replica the same."""

import gc

import gyre.torch as hvd
import pytest
import torch
from torch import nn


def check_replicas(network: nn.Module) -> None:
    for parameter in network.parameters():
        everyone = hvd.allgather(parameter.detach().unsqueeze(0))
        assert all(torch.equal(other, everyone[0]) for other in everyone)


def sparse_gradients() -> None:
    rank, size = hvd.rank(), hvd.size()
    embedding = nn.Embedding(6, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1.0))
    for _ in range(3):
        optimizer.zero_grad()
        embedding(torch.tensor([rank, 5])).sum().backward()
        optimizer.step()
        assert embedding.weight.grad.is_sparse
        assert embedding.weight.grad.coalesce().indices().tolist() == [[*range(size), 5]]
        check_replicas(embedding)
    del optimizer
    gc.collect()
    embedding.zero_grad()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1.0), sparse_as_dense=True)
    embedding(torch.tensor([rank, 5])).sum().backward()
    optimizer.step()
    wanted = torch.zeros(6, 2)
    wanted[:size] = 1.0 / size
    wanted[5] += 1.0
    torch.testing.assert_close(embedding.weight.grad, wanted)
    del optimizer
    gc.collect()
    embedding.zero_grad()
    lazy = hvd.DistributedOptimizer(torch.optim.SparseAdam(embedding.parameters(), lr=1.0))
    embedding(torch.tensor([rank, 5])).sum().backward()
    lazy.step()
    assert embedding.weight.grad.is_sparse
    torch.testing.assert_close(embedding.weight.grad.to_dense(), wanted)
    check_replicas(embedding)


def sparse_beside_dense_gradients() -> None:
    """Rows that travel alone end in the weights that whole tables end in, also where a rank has none of them."""
    rank = hvd.rank()
    weights = []
    for sparse in (True, False):
        torch.manual_seed(4)
        embedding, head = nn.Embedding(9, 3, sparse=sparse), nn.Linear(3, 2)
        parameters = [*embedding.parameters(), *head.parameters()]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1))
        for step in range(4):
            optimizer.zero_grad()
            rows = embedding(torch.tensor([rank, 7, step])) if (rank + step) % 3 else torch.ones(2, 3)
            head(rows).square().sum().backward()
            optimizer.step()
            check_replicas(head)
        optimizer.zero_grad()
        weights.append([parameter.detach().clone() for parameter in parameters])
        del optimizer
        gc.collect()
    for own, other in zip(*weights, strict=True):
        torch.testing.assert_close(own, other)


def body_sparse() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(3)
    hvd.init()
    sparse_gradients()
    sparse_beside_dense_gradients()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_sparse_gradients_are_exchanged_by_their_rows(run_ranks, size):
    run_ranks(size, body_sparse)
