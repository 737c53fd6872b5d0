"""What DistributedOptimizer's hook costs per gradient, in microseconds of processor time of the thread that calls it.

    gyre run -n 2 -- python bench/hooks.py

The gradients are small, so that this is the price of the call and not of copying. "new": backward() has made a new
tensor, as after zero_grad(); "in place": it has added to the gradient of the last step, as after
zero_grad(set_to_none=False). The hooks are called as autograd does, one per parameter; step() follows, outside of what
is measured. Medians over the steps, of the slower rank.
"""

from __future__ import annotations

import argparse
import statistics
import time

import gyre.torch as hvd
import torch


def measure(count: int, steps: int, *, in_place: bool) -> list[float]:
    parameters = [torch.nn.Parameter(torch.zeros(16)) for _ in range(count)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), end_in_backward=False)
    hooks = [(next(iter(p._post_accumulate_grad_hooks.values())), p) for p in parameters]
    costs = []
    for step in range(steps + 2):
        if not in_place or step == 0:
            for parameter in parameters:
                parameter.grad = torch.ones(16)
        begin = time.thread_time_ns()
        for hook, parameter in hooks:
            hook(parameter)
        costs.append((time.thread_time_ns() - begin) / count / 1000)
        optimizer.step()
    return costs[2:]  # The first step makes the plan.


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gradients", type=int, default=200)
    options.add_argument("--steps", type=int, default=50)
    asked = options.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    for name, in_place in (("new", False), ("in place", True)):
        own = statistics.median(measure(asked.gradients, asked.steps, in_place=in_place))
        medians = hvd.allgather_object(own)
        if hvd.rank() == 0:
            print(f"{name:10} {max(medians):6.2f} us per gradient")


if __name__ == "__main__":
    main()
