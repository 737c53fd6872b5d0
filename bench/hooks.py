"""What DistributedOptimizer's hook costs per gradient, in microseconds of processor time of the thread that calls it.

    gyre run -n 2 -- python bench/hooks.py

The gradients are small, so that this is the price of the calls and not of copying. "new": backward() has made a new
tensor, as after zero_grad(); "in place": it has added to the gradient of the last step, as after
zero_grad(set_to_none=False). Both hooks are called as autograd does, one per parameter, without autograd. "backward":
by how much a backward() takes longer than one of parameters that nobody exchanges. step() is not part of what is
measured. Median and least of the steps, of the rank that is slower.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import gyre.torch as hvd
import torch


class Steps:
    """Of an optimizer over small parameters."""

    def __init__(self, count: int, *, exchanged: bool = True) -> None:
        self.parameters = [torch.nn.Parameter(torch.zeros(16)) for _ in range(count)]
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.parameters, lr=0.1)
        if exchanged:
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, end_in_backward=False)
            self.hooks = [(next(iter(p._post_accumulate_grad_hooks.values())), p) for p in self.parameters]

    def measured(self, steps: int, prepare: Callable[[int], None], work: Callable[[], None]) -> list[float]:
        costs = []
        for step in range(steps + 2):
            prepare(step)
            begin = time.thread_time_ns()
            work()
            costs.append((time.thread_time_ns() - begin) / len(self.parameters) / 1000)
            self.optimizer.step()
        return costs[2:]  # The first one makes the plan.

    def fill(self, step: int) -> None:  # noqa: ARG002
        for parameter in self.parameters:
            parameter.grad = torch.ones(16)

    def fill_once(self, step: int) -> None:
        if step == 0:
            self.fill(step)

    def call_hooks(self) -> None:
        for hook, parameter in self.hooks:
            hook(parameter)

    def forward(self, step: int) -> None:  # noqa: ARG002
        self.optimizer.zero_grad()
        self.losses = [parameter.sum() for parameter in self.parameters]

    def backward(self) -> None:
        torch.autograd.backward(self.losses)


def report(name: str, costs: list[float], less: list[float] | None = None) -> None:
    own = [summary(costs) - (summary(less) if less else 0.0) for summary in (statistics.median, min)]
    ranks = hvd.allgather_object(own)
    if hvd.rank() == 0:
        median, least = (max(values) for values in zip(*ranks, strict=True))
        print(f"{name:10} {median:6.2f} us per gradient, at least {least:.2f}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gradients", type=int, default=200)
    options.add_argument("--steps", type=int, default=100)
    asked = options.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    if hvd.size() < 2:
        raise SystemExit("a single rank exchanges nothing; run: gyre run -n 2 -- python bench/hooks.py")
    hooks, alone = Steps(asked.gradients), Steps(asked.gradients, exchanged=False)
    report("new", hooks.measured(asked.steps, hooks.fill, hooks.call_hooks))
    hooks = Steps(asked.gradients)
    report("in place", hooks.measured(asked.steps, hooks.fill_once, hooks.call_hooks))
    hooks = Steps(asked.gradients)
    exchanged = hooks.measured(asked.steps, hooks.forward, hooks.backward)
    report("backward", exchanged, alone.measured(asked.steps, alone.forward, alone.backward))


if __name__ == "__main__":
    main()
