"""One rank of bench/tensorflow_step.py in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gyre.torch as hvd
import torch
from _step_rank import FACTOR, RATE, Step, after_one_step, measured, parsed, shapes_of, write_times


class _Loss(torch.autograd.Function):
    """Of which the gradient to each parameter is what is given for it, times FACTOR."""

    @staticmethod
    def forward(context: Any, given: Sequence[torch.Tensor], *parameters: torch.Tensor) -> torch.Tensor:
        context.given = given
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(context: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, *(one * FACTOR for one in context.given)


def step_of(shapes: Sequence[Sequence[int]], expected: float, *, exchanged: bool) -> Step:
    """A step that computes gradients, in an order that suits DistributedOptimizer, and applies them. SystemExit if
    the first one does not leave what is expected."""
    given = [torch.full(shape, float(hvd.rank() + 1)) for shape in shapes]
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
    optimizer: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=RATE)
    if exchanged:
        optimizer = hvd.DistributedOptimizer(optimizer)

    def step() -> None:
        optimizer.zero_grad()
        _Loss.apply(given, *parameters).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    step()
    if not all(bool((parameter == expected).all()) for parameter in parameters):
        raise SystemExit("wrong answer: the gradients are not the ranks' average")
    return Step(step)


arguments = parsed()
hvd.init()
sizes, own, average = shapes_of(arguments.tensors), -RATE * FACTOR * (hvd.rank() + 1), after_one_step(hvd.size())
steps = {"alone": step_of(sizes, own, exchanged=False), "gyre": step_of(sizes, average, exchanged=True)}
times = measured(steps, arguments.seconds, hvd.barrier, lambda value: int(hvd.broadcast(torch.tensor([value]), 0)[0]))
write_times(arguments.result, times)
hvd.shutdown()
