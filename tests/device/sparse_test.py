"""Gradients of embeddings are sparse: on a device their rows must reach the other ranks as those of the CPU do, with
the same results, whoever exchanges the dense ones."""

from __future__ import annotations

import gyre.torch as hvd
import pytest
import sim_device
import torch
from horovod_on_device import leave, own_device
from ranks_fixture import RunRanks
from torch import nn

SIZE = 2
WORDS = 12


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 3, sparse=True)
        self.linear = nn.Linear(3, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(self.embedding(words)).square().sum()
        return result


def trained(device: torch.device, *, sparse_as_dense: bool = False, end_in_backward: bool = True) -> Model:
    """After some steps, in which the ranks have words in common, and each some of its own."""
    torch.manual_seed(1)
    model = Model().to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model.named_parameters(),
        sparse_as_dense=sparse_as_dense,
        end_in_backward=end_in_backward,
    )
    for step in range(3):
        optimizer.zero_grad()
        words = torch.tensor([step, hvd.rank() + 3, hvd.rank() + 3, 5 + 2 * hvd.rank() + step % 2])
        model(words.to(device)).backward()
        optimizer.step()
    return model


def body() -> None:
    sim_device.begin()
    torch.set_num_threads(1)
    hvd.init()
    for options in ({}, {"end_in_backward": False}, {"sparse_as_dense": True}):
        wanted = trained(torch.device("cpu"), **options)
        ours = trained(own_device(), **options)
        for (name, right), own in zip(wanted.named_parameters(), ours.parameters(), strict=True):
            found = own.detach().cpu()
            assert torch.allclose(found, right, rtol=1e-5, atol=1e-6), (options, name, found, right)
            everybodys = hvd.allgather(found.unsqueeze(0))
            assert all(torch.equal(one, found) for one in everybodys), (options, name)
    tensor = torch.sparse_coo_tensor(
        [[1, hvd.rank() + 2, 1]], torch.tensor([1.0, 2.0, 3.0]), (6,), check_invariants=True
    )
    for op in (hvd.Sum, hvd.Average):
        own = hvd.allreduce(tensor.to(own_device()), op=op)
        right = hvd.allreduce(tensor, op=op)
        assert own.device == own_device()
        assert own.is_sparse
        assert own.is_coalesced()
        assert torch.equal(own._indices().cpu(), right._indices())
        assert torch.equal(own._values().cpu(), right._values())
    leave()


@pytest.mark.parametrize("carrier", sim_device.CARRIERS)
@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
def test_sparse_gradients_of_a_device_train_as_those_of_the_cpu(
    run_ranks: RunRanks, schedule: str, carrier: str
) -> None:
    run_ranks(SIZE, body, environment={"SCHEDULE": schedule, "CARRIER": carrier})
