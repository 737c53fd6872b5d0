"""Random graphs and random loops: training with gradients in the arena gives, bit for bit, the weights of one process
that plays all ranks with plain PyTorch and adds their gradients in rank order. Every case prints its seed."""

import copy
import random
from dataclasses import dataclass, field

import gyre.torch as hvd
import torch
from effort import first_seed, rounds
from torch import nn

CASES_PER_SIZE = rounds(15, 40)
WIDTH = 6


@dataclass
class Case:
    """What one seed stands for; the same on all ranks."""

    seed: int
    steps: int
    passes: int  # Backward passes per step.
    set_to_none: bool
    zero_grad: str  # Whose zero_grad() is called: the optimizer's, the model's, or each gradient is zeroed in place.
    clips: bool
    edits: bool  # Gradients are changed in place after synchronize().
    hooks: str  # "", "tensor" (before accumulation), "before" or "after" ours.
    explicit: bool  # synchronize() and skip_synchronize() even without need.
    keeps: bool  # Gradients of the step before are kept, and must keep their values.
    alternates: bool  # Odd steps use another part of the network.
    optimizer: str
    blocks: list[tuple[str, int]] = field(default_factory=list)


def make_case(seed: int) -> Case:
    choose = random.Random(seed)
    blocks = [
        (
            choose.choice(["linear", "linear", "shared", "norm", "branch", "unused", "scale", "wide"]),
            choose.randrange(3),
        )
        for _ in range(choose.randint(2, 6))
    ]
    return Case(
        seed=seed,
        steps=choose.randint(2, 4),
        passes=choose.choice([1, 1, 2, 3]),
        set_to_none=choose.random() < 0.5,
        zero_grad=choose.choice(["optimizer", "optimizer", "model", "in place"]),
        clips=choose.random() < 0.3,
        edits=choose.random() < 0.3,
        hooks=choose.choice(["", "", "tensor", "before", "after"]),
        explicit=choose.random() < 0.3,
        keeps=choose.random() < 0.3,
        alternates=choose.random() < 0.3,
        optimizer=choose.choice(["sgd", "adam"]),
        blocks=blocks,
    )


class Network(nn.Module):
    """Blocks one after the other; some share their parameters, some are left out by some ranks or in some steps."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        torch.manual_seed(case.seed)
        self.case = case
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.tables = nn.ModuleList()
        self.free = nn.ParameterList()
        for kind, _ in case.blocks:
            width = 40 * WIDTH if kind == "wide" else WIDTH
            self.tables.append(nn.Sequential(nn.Linear(WIDTH, width), nn.Tanh(), nn.Linear(width, WIDTH)))
            self.free.append(nn.Parameter(torch.randn(WIDTH)))

    def uses(self, index: int, rank: int, step: int) -> bool:
        kind, number = self.case.blocks[index]
        if kind == "unused":  # On all ranks, on one, or on all but one.
            return {0: False, 1: rank != 0, 2: rank == 0}[number]
        if kind == "branch":
            return (rank + step + number) % 2 == 0
        return not (self.case.alternates and (index + step) % 2 == 0)

    def forward(self, values: torch.Tensor, rank: int, step: int) -> torch.Tensor:
        for index, (kind, number) in enumerate(self.case.blocks):
            if not self.uses(index, rank, step):
                continue
            if kind == "shared":
                for _ in range(number + 1):
                    values = torch.tanh(self.shared(values))
            elif kind == "scale":
                values = values * self.free[index] * self.free[index]
            elif kind == "norm":
                values = nn.functional.layer_norm(values, [WIDTH], self.free[index])
            else:
                values = values + self.tables[index](values)
        return values


def backward(network: Network, rank: int, step: int, micro: int) -> None:
    generator = torch.Generator().manual_seed(network.case.seed * 1000 + step * 100 + micro * 10 + rank)
    loss = network(torch.randn(3, WIDTH, generator=generator), rank, step).square().mean()
    if loss.requires_grad:  # Unless this rank leaves everything out in this step.
        loss.backward()


def inner_optimizer(case: Case, network: Network) -> torch.optim.Optimizer:
    if case.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), lr=0.01)
    return torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)


def shape_gradients(case: Case, network: Network) -> None:
    """What the user does with the averaged gradients."""
    if case.edits:
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(0.5).add_(0.001)
    if case.clips:
        nn.utils.clip_grad_norm_(network.parameters(), 0.01)


def scale_gradient(parameter: torch.Tensor) -> None:
    parameter.grad.mul_(1.25)


def read_gradient(parameter: torch.Tensor) -> None:
    assert parameter.grad.shape == parameter.shape


def add_hooks(case: Case, network: Network, when: str) -> None:
    for parameter in network.parameters():
        if case.hooks == "tensor" == when:
            parameter.register_hook(lambda gradient: gradient * 1.5)
        elif case.hooks == "before" == when:
            parameter.register_post_accumulate_grad_hook(scale_gradient)
        elif case.hooks == "after" == when:
            parameter.register_post_accumulate_grad_hook(read_gradient)


class Reference:
    """One process that plays all ranks."""

    def __init__(self, case: Case, size: int) -> None:
        self.case, self.size = case, size
        self.network = Network(case)
        self.optimizer = inner_optimizer(case, self.network)
        for when in ("tensor", "before", "after"):
            add_hooks(case, self.network, when)

    def step(self, step: int) -> None:
        total: list[torch.Tensor] = []
        for rank in range(self.size):
            self.optimizer.zero_grad()
            for micro in range(self.case.passes):
                backward(self.network, rank, step, micro)
            own = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.network.parameters()]
            total = own if rank == 0 else [a + b for a, b in zip(total, own, strict=True)]
        for parameter, gradient in zip(self.network.parameters(), total, strict=True):
            parameter.grad = gradient / self.size
        shape_gradients(self.case, self.network)
        self.optimizer.step()


class Distributed:
    """This rank's part."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.network = Network(case)
        add_hooks(case, self.network, "tensor")
        add_hooks(case, self.network, "before")
        self.optimizer = hvd.DistributedOptimizer(
            inner_optimizer(case, self.network),
            self.network.named_parameters(),
            backward_passes_per_step=case.passes,
        )
        add_hooks(case, self.network, "after")
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def zero(self) -> None:
        if self.case.zero_grad == "optimizer":
            self.optimizer.zero_grad(set_to_none=self.case.set_to_none)
        elif self.case.zero_grad == "model":
            self.network.zero_grad(set_to_none=self.case.set_to_none)
        else:
            for parameter in self.network.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()

    def step(self, step: int) -> None:
        self.zero()
        for micro in range(self.case.passes):
            backward(self.network, hvd.rank(), step, micro)
        if self.case.edits or self.case.clips or self.case.explicit:
            self.optimizer.synchronize()
            shape_gradients(self.case, self.network)
            with self.optimizer.skip_synchronize():
                self.optimizer.step()
        else:
            self.optimizer.step()
        self.look_at_kept()

    def look_at_kept(self) -> None:
        """Gradients that were kept before zero_grad(set_to_none=True) are the user's."""
        if not (self.case.keeps and self.case.set_to_none and self.case.zero_grad != "in place"):
            return
        for kept, values in self.kept:
            assert torch.equal(kept, values), "a gradient that was kept has changed"
        gradients = [parameter.grad for parameter in self.network.parameters() if parameter.grad is not None]
        self.kept += [(gradient, gradient.clone()) for gradient in gradients]


def run_case(seed: int) -> None:
    case = make_case(seed)
    reference, distributed = Reference(case, hvd.size()), Distributed(copy.deepcopy(case))
    for step in range(case.steps):
        reference.step(step)
        distributed.step(step)
        for (name, own), right in zip(
            distributed.network.named_parameters(), reference.network.parameters(), strict=True
        ):
            assert torch.equal(own, right), f"'{name}' differs after step {step} of {case}"


def body_random_graphs() -> None:
    torch.set_num_threads(1)
    hvd.init()
    for number in range(CASES_PER_SIZE):
        seed = 10_000 * hvd.size() + number + first_seed()
        print(f"seed {seed}", flush=True)
        run_case(seed)


def test_random_graphs_train_as_one_process_would_with_two_ranks(run_ranks):
    run_ranks(2, body_random_graphs, timeout_s=240)


def test_random_graphs_train_as_one_process_would_with_three_ranks(run_ranks):
    run_ranks(3, body_random_graphs, timeout_s=240)
