"""Replicas that start unequal stay so, and nothing else says it: a forgotten broadcast_parameters() must be heard of in
the first step, once, and nobody who did it right may be bothered."""

import linecache
import warnings

import gyre.torch as hvd
import pytest
import torch
from gyre.errors import InvalidArgumentError, MismatchError
from torch import nn


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), nn.Linear(2, 1))


def warnings_of_steps(model: nn.Module, steps: int = 3, **options: object) -> list[str]:
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters(), **options
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    return [str(warning.message) for warning in caught]


def body_forgotten_broadcast() -> None:
    hvd.init()
    model = network(seed=7)
    if hvd.rank() == 1:
        with torch.no_grad():
            model[1].bias.add_(1.0)
            model[2].weight.add_(1.0)
    for options in ({}, {"end_in_backward": False}, {"op": hvd.Adasum}):
        said = warnings_of_steps(model, **options)
        if hvd.rank() > 0:
            assert said == []
            continue
        assert len(said) == 1, said
        assert "'1.bias' on rank 1 differs from rank 0 (2 of 6 parameters differ)" in said[0]
        assert "broadcast_parameters(model.state_dict(), root_rank=0)" in said[0]


def test_a_forgotten_broadcast_is_one_warning_with_the_first_parameter_that_differs(run_ranks):
    run_ranks(3, body_forgotten_broadcast)


def body_where_it_is() -> None:
    hvd.init()
    model = network(seed=hvd.rank())
    for options in ({}, {"end_in_backward": False}):
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters(), **options
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        for warning in caught:
            line = linecache.getline(warning.filename, warning.lineno).strip()
            assert line == ("optimizer.step()" if options else "model(torch.ones(2, 4)).sum().backward()")
        assert len(caught) == (hvd.rank() == 0)


def test_the_warning_shows_the_users_own_line(run_ranks):
    run_ranks(2, body_where_it_is)


def body_error_by_option() -> None:
    hvd.init()
    model = network(seed=hvd.rank())
    for end_in_backward in (True, False):
        with pytest.raises(MismatchError, match=r"'0\.weight' on ranks 1, 2 differs from rank 0"):
            warnings_of_steps(model, unequal_replicas="error", end_in_backward=end_in_backward)
    assert warnings_of_steps(model, unequal_replicas="allow") == []
    # The most lenient of them counts, or some ranks would wait for those that have raised.
    assert warnings_of_steps(model, unequal_replicas="error" if hvd.rank() else "allow") == []
    with pytest.raises(InvalidArgumentError, match="unequal_replicas must be one of 'allow', 'warn', 'error'"):
        warnings_of_steps(model, unequal_replicas="never")


def test_unequal_replicas_are_an_error_on_all_ranks_or_nothing_by_option(run_ranks):
    run_ranks(3, body_error_by_option)


class PartlyLocal(nn.Module):
    """With a module of this rank alone, which no loss uses."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 1)
        self.local = nn.Linear(4, 2)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.shared(batch)


def body_legitimate_differences() -> None:
    hvd.init()
    rank, strict = hvd.rank(), {"unequal_replicas": "error"}
    torch.manual_seed(rank)
    model = network(seed=rank)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    assert warnings_of_steps(model, **strict) == []

    partly_local = PartlyLocal()
    hvd.broadcast_parameters(partly_local.shared.state_dict(), root_rank=0)
    assert warnings_of_steps(partly_local, **strict) == []

    frozen = network(seed=rank)
    hvd.broadcast_parameters(frozen[2].state_dict(), root_rank=0)
    frozen[:2].requires_grad_(False)
    assert warnings_of_steps(frozen, **strict) == []

    # Two models, each of two ranks: equal within a process set, and nowhere else.
    halves = [hvd.add_process_set([0, 1]), hvd.add_process_set([2, 3])]
    own = halves[rank // 2]
    half = network(seed=rank // 2)
    assert warnings_of_steps(half, process_set=own, **strict) == []
    unequal = network(seed=rank)
    with pytest.raises(MismatchError, match=f"on rank {own.ranks[1]} differs from rank {own.ranks[0]}"):
        warnings_of_steps(unequal, process_set=own, **strict)


def test_differences_that_are_meant_are_left_alone(run_ranks):
    run_ranks(4, body_legitimate_differences)


def body_no_batch_at_all() -> None:
    """This rank joins before its first step; the others compare their replicas with its."""
    hvd.init()
    model = network(seed=hvd.rank())
    named = list(model.named_parameters())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named, unequal_replicas="error")
    if hvd.rank() == 1:
        with pytest.raises(MismatchError, match="do not start with the same parameters"):
            hvd.join()
    else:
        with pytest.raises(MismatchError, match="do not start with the same parameters"):
            model(torch.ones(2, 4)).sum().backward()
    assert optimizer is not None


def test_a_rank_without_any_batch_takes_part_in_the_comparison(run_ranks):
    run_ranks(2, body_no_batch_at_all)


def body_operations_of_a_step() -> None:
    """What rides along is there once: later steps make no operation at all outside of their plan."""
    hvd.init()
    model = network(seed=1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())

    def collectives_outside_of_plans() -> int:
        lanes = hvd.statistics()["lanes"]
        return sum(lane["collectives"] for lane in lanes if lane["lane"] in ("open", "board"))

    counts = []
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        counts.append(collectives_outside_of_plans())
    assert counts[0] == counts[3], counts


def test_later_steps_pay_nothing_for_the_comparison(run_ranks):
    run_ranks(2, body_operations_of_a_step)
