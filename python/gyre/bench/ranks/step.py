"""One rank of the step benchmark in Python: whole training steps of a model on random data, alone and with each
variant of the exchange, in turns of several steps, so that a noisy minute affects all alike. Runs under `gyre run`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gyre.distributed  # noqa: F401  The backend, also where the package is not installed.
import gyre.torch as hvd
from gyre.bench.models import MODELS
from gyre.bench.ranks.groups import Ranks, find_rank_0, gloo_ranks, gyre_ranks, leave
from gyre.bench.ranks.timing import arguments_parser, effort_of, rounds_for, write_result

_LEARNING_RATE = 1e-3
# A training runs one step after the other: the first step of a turn finds caches and memory as another network has left
# them, and does not count.
_STEPS_OF_A_TURN = 4
ALONE = "alone"
DDP_IDLE = "ddp-idle"


@dataclass(frozen=True)
class Trained:
    """A network and everything that a training step needs."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    meets: bool = False  # Between backward and the optimizer's step.


def _alone(network: nn.Module, optimizer: torch.optim.Optimizer, _: bool) -> Trained:
    return Trained(network, optimizer)


def _meet(network: nn.Module, optimizer: torch.optim.Optimizer, _: bool) -> Trained:
    return Trained(network, optimizer, meets=True)


def _gloo(network: nn.Module, optimizer: torch.optim.Optimizer, bucket_views: bool) -> Trained:
    return Trained(DistributedDataParallel(network, gradient_as_bucket_view=bucket_views), optimizer)


def _ddp(network: nn.Module, optimizer: torch.optim.Optimizer, bucket_views: bool) -> Trained:
    group = dist.new_group(backend="gyre")
    network = DistributedDataParallel(network, process_group=group, gradient_as_bucket_view=bucket_views)
    return Trained(network, optimizer)


def _ddp_idle(network: nn.Module, optimizer: torch.optim.Optimizer, bucket_views: bool) -> Trained:
    """No exchange: every rank steps with its own gradients."""
    network = DistributedDataParallel(network, gradient_as_bucket_view=bucket_views)
    network.register_comm_hook(None, lambda _, bucket: _done(bucket.buffer()))
    return Trained(network, optimizer)


def _done(result: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(result)
    return future


def _hvd(network: nn.Module, optimizer: torch.optim.Optimizer, _: bool) -> Trained:
    return Trained(network, hvd.DistributedOptimizer(optimizer, network.named_parameters()))


# The last argument: whether DDP's gradients are views of its buckets.
WRAPS: dict[str, Callable[[nn.Module, torch.optim.Optimizer, bool], Trained]] = {
    ALONE: _alone,
    "meet": _meet,
    "gloo": _gloo,
    "ddp": _ddp,
    DDP_IDLE: _ddp_idle,
    "hvd": _hvd,
}


@dataclass(frozen=True)
class Cost:
    """One step's times, in microseconds: until the last rank has finished it, and this rank's processor time, all
    threads."""

    time_us: float
    processor_us: float


@dataclass(frozen=True)
class Work:
    """Samples of this rank."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def step(self, trained: Trained, ranks: Ranks) -> Cost:
        """One step, which all ranks begin together."""
        ranks.meet()
        start, start_of_processor = time.perf_counter(), time.process_time()
        trained.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(trained.network(self.inputs), self.targets)
        loss.backward()  # type: ignore[no-untyped-call]
        if trained.meets:
            ranks.meet()
        trained.optimizer.step()
        ranks.meet()
        return Cost((time.perf_counter() - start) * 1e6, (time.process_time() - start_of_processor) * 1e6)

    def turn(self, trained: Trained, ranks: Ranks) -> Cost:
        """The median of several steps in a row."""
        steps = [self.step(trained, ranks) for _ in range(_STEPS_OF_A_TURN)][1:]
        return Cost(
            statistics.median(step.time_us for step in steps), statistics.median(step.processor_us for step in steps)
        )


def added(costs: list[dict[str, Cost]], name: str, part: Callable[[Cost], float], to: str = ALONE) -> float:
    """What the exchange adds, as the median over all rounds. If the machine is slower for a while, a whole round is,
    so the difference is computed round by round."""
    return statistics.median(part(once[name]) - part(once[to]) for once in costs)


def main() -> None:
    parser = arguments_parser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--image-size", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--outputs", type=int, required=True)
    parser.add_argument("--via", required=True, help=f"some of {', '.join(WRAPS)}, separated by commas")
    parser.add_argument("--bucket-views", action="store_true", help="DDP's gradient_as_bucket_view")
    arguments = parser.parse_args()
    model = MODELS[arguments.model]

    def make(face: str) -> Trained:
        torch.manual_seed(1)  # All ranks start from the same weights.
        network = model.make(arguments.image_size, arguments.outputs)
        optimizer = torch.optim.SGD(network.parameters(), _LEARNING_RATE, momentum=0.9)
        return WRAPS[face](network, optimizer, arguments.bucket_views)

    find_rank_0()
    with gyre_ranks() as ranks, gloo_ranks(arguments.store):
        trained = {face: make(face) for face in (ALONE, *arguments.via.split(","))}
        torch.manual_seed(100 + ranks.rank)
        work = Work(
            torch.randn(arguments.batch, *model.sample_shape(arguments.image_size)),
            torch.randint(arguments.outputs, (arguments.batch,)),
        )
        for _ in range(2):  # Plans and DDP learn the order from the first step; the second allocates their memory.
            steps_us = sum(work.step(face, ranks).time_us for face in trained.values())
        rounds = rounds_for(steps_us * _STEPS_OF_A_TURN, effort_of(arguments), ranks)
        costs = [{name: work.turn(face, ranks) for name, face in trained.items()} for _ in range(rounds)]
        if ranks.rank == 0:
            size = sum(values.numel() * values.element_size() for values in trained[ALONE].network.parameters())
            figures: dict[str, object] = {"bytes": size, "rounds": rounds}
            others = [name for name in trained if name != ALONE]
            figures["time_us"] = {name: statistics.median(once[name].time_us for once in costs) for name in trained}
            figures["exposed_us"] = {name: added(costs, name, lambda cost: cost.time_us) for name in others}
            figures["processor_us"] = {name: added(costs, name, lambda cost: cost.processor_us) for name in others}
            if DDP_IDLE in trained:
                figures["beyond_idle_us"] = {
                    name: added(costs, name, lambda cost: cost.time_us, DDP_IDLE)
                    for name in ("gloo", "ddp")
                    if name in trained
                }
            write_result(arguments.result, figures)


if __name__ == "__main__":
    main()
    leave()
