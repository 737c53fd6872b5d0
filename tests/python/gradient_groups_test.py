"""DistributedOptimizer's `groups`: which gradients travel together, seen in the plan's buckets; and the sums."""

from typing import Any

import gyre.torch as hvd
import pytest
import torch
from gyre.errors import MismatchError
from torch import nn


def buckets_of(groups: Any) -> list[int]:
    """How many tensors each bucket has, after two steps whose gradients are checked."""
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 1))
    parameters = list(network.parameters())
    chosen = groups(parameters) if callable(groups) else groups
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), network.named_parameters(), groups=chosen)
    for _ in range(2):
        optimizer.zero_grad()
        network(torch.full([1, 3], float(hvd.rank() + 1))).sum().backward()
        mean = sum(range(1, hvd.size() + 1)) / hvd.size()
        torch.testing.assert_close(parameters[4].grad, mean_gradient_of_last(network, mean))
        optimizer.step()
    return [bucket["tensor_count"] for bucket in hvd.statistics()["plans"][-1]["buckets"]]


def mean_gradient_of_last(network: nn.Module, mean: float) -> torch.Tensor:
    """The network is linear, so the mean of its gradients is that at the mean of the inputs."""
    with torch.no_grad():
        return network[:2](torch.full([1, 3], mean))


def body_groups() -> None:
    hvd.init()
    assert buckets_of(None) == [6]
    assert buckets_of(1) == [6]
    assert buckets_of(2) == [3, 3]
    assert sorted(buckets_of(100)) == [1] * 6
    assert sorted(buckets_of(lambda parameters: [parameters[:1], parameters[4:]])) == [1, 2, 3]
    assert buckets_of([]) == [6]


def body_groups_that_differ() -> None:
    hvd.init()
    with pytest.raises(MismatchError, match="of group 1"):
        buckets_of(2 if hvd.rank() == 0 else None)


@pytest.mark.parametrize("size", [2, 3])
def test_a_group_travels_in_a_bucket_of_its_own(run_ranks: Any, size: int) -> None:
    run_ranks(size, body_groups)


def test_ranks_that_group_differently_are_told_so(run_ranks: Any) -> None:
    run_ranks(2, body_groups_that_differ)
