"""The step benchmark, whoever does the exchange: whole training steps of a model on made-up data, in turns with and
without exchange, so that a noisy minute hits both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from gyre.bench.models import MODELS, Model
from gyre.bench.ranks.groups import Ranks
from gyre.bench.ranks.timing import arguments_parser, effort_of, rounds_for, write_result

_LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Trained:
    """A network with what a step of it needs."""

    network: nn.Module
    optimizer: torch.optim.Optimizer


Wrap = Callable[[nn.Module, torch.optim.Optimizer], Trained]


class _Steps:
    """Of one rank: the same work, with and without the others."""

    def __init__(self, model: Model, image_size: int, batch_size: int, wrap: Wrap, ranks: Ranks) -> None:
        self._ranks = ranks
        outputs = model.step_outputs or model.outputs
        self._inputs = torch.randn(batch_size, *model.sample_shape(image_size))
        self._targets = torch.randint(outputs, (batch_size,))
        self.alone = self._make(model, image_size, outputs)
        own = self._make(model, image_size, outputs)
        self.together = wrap(own.network, own.optimizer)

    @staticmethod
    def _make(model: Model, image_size: int, outputs: int) -> Trained:
        torch.manual_seed(1)  # All ranks start from the same weights.
        network = model.make(image_size, outputs)
        return Trained(network, torch.optim.SGD(network.parameters(), _LEARNING_RATE, momentum=0.9))

    def run(self, trained: Trained) -> float:
        """Microseconds of one step, which all ranks begin together, until the last of them has ended it."""
        self._ranks.meet()
        start = time.perf_counter()
        trained.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(trained.network(self._inputs), self._targets)
        loss.backward()  # type: ignore[no-untyped-call]
        trained.optimizer.step()
        self._ranks.meet()
        return (time.perf_counter() - start) * 1e6


def main(join: Callable[[str], AbstractContextManager[Ranks]], wrap: Wrap) -> None:
    parser = arguments_parser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--image-size", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    arguments = parser.parse_args()
    with join(arguments.store) as ranks:
        torch.manual_seed(100 + ranks.rank)
        steps = _Steps(MODELS[arguments.model], arguments.image_size, arguments.batch, wrap, ranks)
        for _ in range(2):
            steps.run(steps.alone)
            once_us = steps.run(steps.together)
        pairs = rounds_for(2 * once_us, effort_of(arguments), ranks)
        times = [(steps.run(steps.alone), steps.run(steps.together)) for _ in range(pairs)]
        if ranks.rank == 0:
            alone_us = statistics.median(alone for alone, _ in times)
            together_us = statistics.median(together for _, together in times)
            size = sum(values.numel() * values.element_size() for values in steps.alone.network.parameters())
            write_result(arguments.result, {"bytes": size, "alone_us": alone_us, "together_us": together_us})
