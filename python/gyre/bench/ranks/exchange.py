"""The exchange benchmark, for any implementation of the exchange: from the moment backward begins to hand out
existing gradients, to the moment all of them are averaged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gyre.bench.ranks.gradients import GivenGradients, read_tensor_list
from gyre.bench.ranks.groups import Ranks
from gyre.bench.ranks.timing import Effort, arguments_parser, effort_of, measure_steps, write_result


def average(ranks: Ranks) -> float:
    """What gradients of rank + 1 average to."""
    return (ranks.size + 1) / 2


@dataclass(frozen=True)
class Exchange:
    """How an implementation of the exchange is timed and checked."""

    given: GivenGradients
    ranks: Ranks
    effort: Effort

    def measure(
        self, module: nn.Module, step: Callable[[torch.Tensor], None], forget: Callable[[], None], expected: float
    ) -> float:
        """Median microseconds of `step`, which gets the output of `module` and must leave `expected` in every
        gradient if rank r's were r + 1. `forget` prepares the next backward."""
        output: list[torch.Tensor] = []

        def prepare() -> None:
            forget()
            output[:] = [module()]
            self.given.empty_cache()
            self.ranks.meet()

        self.given.flat.fill_(float(self.ranks.rank + 1))
        output[:] = [module()]
        step(output[0])
        self.given.require(expected)
        self.given.flat.zero_()  # Whose sums stay finite however many rounds there are.
        return measure_steps(prepare, lambda: step(output[0]), self.effort, self.ranks)

    def measure_both(
        self, module: nn.Module, step: Callable[[torch.Tensor], None], expected: float
    ) -> dict[str, float]:
        """As the training loop chooses: each step with new gradients, or into the memory of the last ones, which
        zero_grad(set_to_none=False) has filled with zeros."""
        new = self.measure(module, step, self.given.forget_gradients, expected)
        self.given.own_gradients()
        return {"none": new, "zeros": self.measure(module, step, self.given.zero_gradients, expected)}

    def measure_backward(self) -> dict[str, float]:
        """The same without any exchange: what backward() itself takes."""
        return self.measure_both(self.given, self.given.hand_out, float(self.ranks.rank + 1))


def main(
    join: Callable[[str], AbstractContextManager[Ranks]],
    measure: Callable[[GivenGradients, Exchange, Ranks], dict[str, Any]],
) -> None:
    parser = arguments_parser()
    parser.add_argument("--tensors", required=True, type=Path, help="a list of name and shape, in backward's order")
    arguments = parser.parse_args()
    with join(arguments.store) as ranks:
        effort = effort_of(arguments)
        module = GivenGradients(read_tensor_list(arguments.tensors), effort.rotation_bytes)
        exchange = Exchange(module, ranks, effort)
        backward = exchange.measure_backward()
        module.forget_gradients()
        figures = measure(module, exchange, ranks)
        if ranks.rank == 0:
            write_result(arguments.result, {"bytes": module.size_bytes, "backward": backward, **figures})
