"""Ranks that have no data left, while the others train on: at any time, and whoever the gradients are averaged over."""

import gyre.torch as hvd
import pytest
import torch
from checks import each, run_each
from gyre.errors import CallOrderError
from torch import nn


def pair(rate: float = 1.0, **options: object) -> tuple[nn.Parameter, nn.Parameter, torch.optim.Optimizer]:
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    named = [("first", first), ("second", second)]
    return first, second, hvd.DistributedOptimizer(torch.optim.SGD([first, second], lr=rate), named, **options)


def check(gradient: torch.Tensor | None, value: float) -> None:
    assert gradient is not None
    torch.testing.assert_close(gradient, torch.full_like(gradient, value))


def mean_of_ranks() -> float:
    return (hvd.size() + 1) / 2


def join_after(steps: int, passes: int, uses_all: bool, clips: bool) -> None:
    """The last rank makes `steps` steps and joins; the others make two more."""
    rank, size = hvd.rank(), hvd.size()
    first, second, optimizer = pair(rate=0.0, backward_passes_per_step=passes)
    own_steps = steps if rank == size - 1 else steps + 2
    for step in range(own_steps):
        optimizer.zero_grad()
        for _ in range(passes):
            loss = first.sum() * (rank + 1)
            (loss + second.sum() if uses_all or rank != 0 else loss).backward()
        if clips:
            nn.utils.clip_grad_norm_([first, second], 1e9)
        optimizer.step()
        present = size if step < steps else size - 1
        check(first.grad, passes * sum(r + 1 for r in range(present)) / size)
        check(second.grad, passes * (present if uses_all else present - 1) / size)
    assert hvd.join() in range(size)
    # All are there again, whatever the rank that joined has seen.
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(passes):
            ((first.sum() + second.sum()) * (rank + 1)).backward()
        optimizer.step()
        check(first.grad, passes * mean_of_ranks())


def joins_at_any_time() -> None:
    for steps in (0, 1, 2):
        for passes in (1, 2):
            for uses_all in (True, False):
                print(f"join after {steps} steps of {passes} passes, all used: {uses_all}", flush=True)
                join_after(steps, passes, uses_all, clips=False)
    for steps in (0, 1):
        join_after(steps, passes=1, uses_all=True, clips=True)


def joins_between_backward_and_step() -> None:
    """Refused, unless the step is left out on purpose."""
    first, second, optimizer = pair(rate=0.0)
    for _ in range(2):
        optimizer.zero_grad()
        (first.sum() + second.sum()).backward()
        with pytest.raises(CallOrderError, match="between backward"):
            hvd.join()
        optimizer.step()
    optimizer.zero_grad()
    (first.sum() + second.sum()).backward()
    nn.utils.clip_grad_norm_([first, second], 0.1)
    if hvd.rank() == 0:
        hvd.join()
    else:
        optimizer.step()
        optimizer.zero_grad()
        (first.sum() + second.sum()).backward()
        check(first.grad, (hvd.size() - 1) / hvd.size())
        optimizer.step()
        hvd.join()


def joins_in_the_middle_of_a_step() -> None:
    """Of the others: they are between backward() and step(), or between two passes, when the news comes."""
    rank, size = hvd.rank(), hvd.size()
    for at_end_of_backward in (True, False):
        first, second, optimizer = pair(rate=0.0, backward_passes_per_step=2, end_in_backward=at_end_of_backward)
        for step in range(4):
            if rank == 0 and step == 2:
                break
            optimizer.zero_grad()
            (first.sum() + second.sum()).backward()
            if step >= 2:
                # Operations of another kind in between, in which the engine takes part for who has joined.
                assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == size - 1
            (first.sum() + second.sum()).backward()
            if step >= 2:
                hvd.barrier()
            optimizer.step()
            check(first.grad, 2.0 if step < 2 else 2.0 * (size - 1) / size)
        hvd.join()


def averages_over_those_that_are_left() -> None:
    """With every kind of place a gradient may have, and a first step that not all ranks make."""
    rank, size = hvd.rank(), hvd.size()
    for compression in (hvd.Compression.none, hvd.Compression.fp16, Doubles):
        for first_to_join in (0, 1):  # Steps of the rank that joins first.
            first, second, optimizer = pair(rate=0.0, compression=compression, divide_by_contributors=True)
            for step in range(first_to_join if rank == size - 1 else 3):
                optimizer.zero_grad()
                (first.sum() * (rank + 1) + second.sum()).backward()
                optimizer.step()
                present = size if step < first_to_join else size - 1
                check(first.grad, (present + 1) / 2)
                check(second.grad, 1.0)
            hvd.join()
            optimizer.zero_grad()
            (first.sum() * (rank + 1)).backward()
            optimizer.step()
            check(first.grad, mean_of_ranks())
    with pytest.raises(ValueError, match="op=Average only"):
        pair(divide_by_contributors=True, op=hvd.Sum)


class Doubles(hvd.Compressor):
    """Gradients travel as another type, and so do not live in the arena."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        return tensor.double(), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, context: torch.dtype) -> torch.Tensor:
        return tensor.to(context)


JOINS = [
    joins_at_any_time,
    joins_between_backward_and_step,
    joins_in_the_middle_of_a_step,
    averages_over_those_that_are_left,
]


def body_joins() -> None:
    torch.set_num_threads(1)
    hvd.init()
    run_each(JOINS)


@pytest.mark.parametrize("size", [2, 3, 4])
@each(JOINS)
def test_ranks_may_join_between_any_two_steps(run_checks, size, check):
    run_checks(size, body_joins, check)
