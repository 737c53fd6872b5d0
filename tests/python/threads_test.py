"""Threads that train a network each, in one process: what belongs to one exchange must not be taken for all of the
process's. Their steps overlap differently on every rank, and every weight must be what a single process would have."""

import random
import threading
from collections.abc import Callable, Sequence

import gyre.torch as hvd
import torch
from effort import first_seed, rounds
from torch import nn


class Meeting(torch.autograd.Function):
    """Its backward first calls a function."""

    @staticmethod
    def forward(context, values, meet):
        context.meet = meet
        return values.clone()

    @staticmethod
    def backward(context, gradient):
        context.meet()
        return gradient, None


def run_threads(bodies: Sequence[Callable[[], None]]) -> None:
    """Each in a thread of its own; raises the first failure."""
    failures: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def mean_of_ranks() -> float:
    return (hvd.size() + 1) / 2


def body_one_ends_inside_the_other() -> None:
    torch.set_num_threads(1)
    hvd.init()
    rank = hvd.rank()
    parameters = [[nn.Parameter(torch.ones(3)) for _ in range(2)] for _ in range(2)]
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(pair, lr=1.0), [(f"{n}.{i}", p) for i, p in enumerate(pair)])
        for n, pair in enumerate(parameters)
    ]
    half_way, ended = threading.Barrier(2, timeout=60), threading.Barrier(2, timeout=60)

    def outer() -> None:
        first, second = parameters[0]
        for _ in range(4):
            optimizers[0].zero_grad()

            def meet() -> None:
                assert first.grad is not None
                assert second.grad is None
                half_way.wait()
                ended.wait()

            later = Meeting.apply(second * (rank + 1), meet).sum()
            (later + (first * (rank + 1)).sum()).backward()  # What was computed last comes first.
            for parameter in (first, second):
                torch.testing.assert_close(parameter.grad, torch.full((3,), mean_of_ranks()))
            optimizers[0].step()

    def inner() -> None:
        first, second = parameters[1]
        for _ in range(4):
            optimizers[1].zero_grad()
            half_way.wait()
            ((first.sum() + second.sum()) * (rank + 1)).backward()
            ended.wait()
            optimizers[1].step()

    run_threads([outer, inner])
    for parameter in (*parameters[0], *parameters[1]):
        torch.testing.assert_close(parameter.detach(), torch.full((3,), 1.0 - 4 * mean_of_ranks()))


def test_the_end_of_one_backward_leaves_the_others_alone(run_ranks):
    run_ranks(2, body_one_ends_inside_the_other)


KINDS = ("sgd", "adam", "lbfgs", "adasum", "in step", "late layers", "two passes")


class Trainer:
    """One network, the same on all ranks, with one optimizer; and the same network in a process that plays all
    ranks."""

    def __init__(self, seed: int, kind: str, plays_all: bool) -> None:
        self.choose = random.Random(seed)
        self.kind, self.plays_all = kind, plays_all
        torch.manual_seed(seed)
        self.network = nn.Sequential(*(nn.Linear(5, 5) for _ in range(self.choose.randint(1, 3))))
        self.steps = self.choose.randint(3, 5)
        if kind == "late layers":
            self.network[0].requires_grad_(len(self.network) == 1)
        parameters = self.network.parameters()
        inner: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=0.05)
        if kind == "adam":
            inner = torch.optim.Adam(self.network.parameters(), lr=0.01)
        if kind == "lbfgs":
            inner = torch.optim.LBFGS(self.network.parameters(), max_iter=3)
        self.optimizer = inner
        if not plays_all:
            self.optimizer = hvd.DistributedOptimizer(
                inner,
                self.network.named_parameters(),
                op=hvd.Adasum if kind == "adasum" else hvd.Average,
                end_in_backward=kind != "in step",
                backward_passes_per_step=2 if kind == "two passes" else 1,
            )

    def loss(self, step: int, rank: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * step + rank)
        values: torch.Tensor = self.network(torch.randn(4, 5, generator=generator))
        return values.square().mean()

    def train(self) -> None:
        for step in range(self.steps):
            if self.kind == "late layers" and step == 1:
                self.network[0].requires_grad_(True)
            if self.kind == "adasum" and self.plays_all:
                self.adaptive_step(step)
                continue

            def closure(step: int = step) -> torch.Tensor:
                self.optimizer.zero_grad()
                passes = 2 if self.kind == "two passes" else 1
                losses = [self.backward(step + 100 * number) for number in range(passes)]
                return losses[0]

            if self.kind == "lbfgs":
                self.optimizer.step(closure)
            else:
                closure()
                self.optimizer.step()

    def backward(self, step: int) -> torch.Tensor:
        if not self.plays_all:
            loss = self.loss(step, hvd.rank())
            loss.backward()
            return loss
        losses = [self.loss(step, rank) for rank in range(hvd.size())]
        total = torch.stack(losses).sum() / hvd.size()
        total.backward()
        return total

    def adaptive_step(self, step: int) -> None:
        """Of two ranks: a(1 - a·b/2|a|²) + b(1 - a·b/2|b|²), for the change of each parameter."""
        changes = []
        for rank in range(2):
            self.optimizer.zero_grad()
            self.loss(step, rank).backward()
            changes.append([-0.05 * p.grad.double() for p in self.network.parameters() if p.grad is not None])
        with torch.no_grad():
            for parameter, a, b in zip(self.network.parameters(), *changes, strict=True):
                common = (a * b).sum()
                parameter.add_(a * (1 - common / (2 * (a * a).sum())) + b * (1 - common / (2 * (b * b).sum())))


def body_random_threads() -> None:
    torch.set_num_threads(1)
    hvd.init()
    for seed in range(first_seed(), first_seed() + rounds(6, 40)):
        print(f"GYRE_TEST_SEED={seed}", flush=True)
        choose = random.Random(seed)
        kinds = choose.choices(KINDS, k=choose.randint(2, 4))
        trainers = [Trainer(seed * 10 + n, kind, plays_all=False) for n, kind in enumerate(kinds)]
        twins = [Trainer(seed * 10 + n, kind, plays_all=True) for n, kind in enumerate(kinds)]
        order = list(range(len(kinds)))
        random.Random(seed * 100 + hvd.rank()).shuffle(order)  # Another one on each rank.
        run_threads([trainers[n].train for n in order])
        for kind, trainer, twin in zip(kinds, trainers, twins, strict=True):
            twin.train()
            for own, expected in zip(trainer.network.parameters(), twin.network.parameters(), strict=True):
                torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5, msg=lambda text, k=kind: f"{k}: {text}")
            check = torch.cat([p.detach().flatten() for p in trainer.network.parameters()])
            assert all(torch.equal(other, check) for other in hvd.allgather(check.unsqueeze(0)))


def test_threads_train_as_processes_do(run_ranks):
    run_ranks(2, body_random_threads)
