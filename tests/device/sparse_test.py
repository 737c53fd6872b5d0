"""Gradients of embeddings are sparse: on a device their rows must reach the other ranks as those of the CPU do, with
the same results, whoever exchanges the dense ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gyre.torch as hvd
import pytest
import sim_device
import torch
import torch.distributed as dist
from gyre.errors import UnsupportedError
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


def sgd(model: Model, **options: Any) -> Any:
    """Over all parameters, of which one has sparse gradients."""
    return hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(prefix="model"), **options
    )


def sparse_adam(model: Model, **options: Any) -> Any:
    """Over the only parameter that it accepts."""
    parameters = model.embedding.named_parameters(prefix="embedding")
    return hvd.DistributedOptimizer(torch.optim.SparseAdam(model.embedding.parameters(), lr=0.1), parameters, **options)


def trained(device: torch.device, make: Callable[..., Any], options: dict[str, Any]) -> Model:
    """After some steps, in which the ranks have words in common, and each some of its own."""
    torch.manual_seed(1)
    model = Model().to(device)
    optimizer = make(model, **options)
    for step in range(3):
        optimizer.zero_grad()
        words = torch.tensor([step, hvd.rank() + 3, hvd.rank() + 3, 5 + 2 * hvd.rank() + step % 2])
        model(words.to(device)).backward()
        optimizer.step()
    return model


CASES: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (sgd, {}),
    (sgd, {"end_in_backward": False}),
    (sgd, {"sparse_as_dense": True}),
    (sgd, {"compression": hvd.Compression.fp16}),
    (sgd, {"compression": hvd.Compression.fp16, "sparse_as_dense": True}),
    (sparse_adam, {}),
    (sparse_adam, {"sparse_as_dense": True}),
    (sparse_adam, {"compression": hvd.Compression.fp16}),
    (sparse_adam, {"compression": hvd.Compression.fp16, "sparse_as_dense": True}),
]


def body() -> None:
    sim_device.begin()
    torch.set_num_threads(1)
    hvd.init()
    for make, options in CASES:
        wanted = trained(torch.device("cpu"), make, options)
        ours = trained(own_device(), make, options)
        for (name, right), own in zip(wanted.named_parameters(), ours.parameters(), strict=True):
            found, case = own.detach().cpu(), (make.__name__, options, name)
            assert torch.allclose(found, right, rtol=1e-5, atol=1e-6), (case, found, right)
            if name.startswith("linear") and make is sparse_adam:
                continue  # Not trained.
            everybodys = hvd.allgather(found.unsqueeze(0))
            assert all(torch.equal(one, found) for one in everybodys), case
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


def body_of_torchs_groups() -> None:
    """Neither way takes them. Nobody hangs, and all goes on."""
    sim_device.join_group(SIZE)
    device = sim_device.own_device()
    sparse = torch.sparse_coo_tensor([[0, 1 + dist.get_rank()]], torch.ones(2), (4,), check_invariants=True).to(device)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=rf"a sparse tensor on {sim_device.NAME}:.*pass tensor.to_dense\(\)"):
            dist.all_reduce(sparse)
    dense = torch.ones(2, device=device)
    dist.all_reduce(dense)
    assert dense.tolist() == [SIZE] * 2
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", sim_device.BACKENDS)
def test_a_sparse_tensor_of_torchs_groups_is_one_error(run_ranks: RunRanks, backend: str) -> None:
    run_ranks(SIZE, body_of_torchs_groups, environment={"SCHEDULE": "lazy", "BACKEND": backend})
