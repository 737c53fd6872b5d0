"""What training through parameter servers means, in NumPy: docs/guide/parameter_servers.md says it in words."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

Tensors = list[np.ndarray]
Gradients = list[np.ndarray | None]


@dataclass
class Optimizer:
    """torch.optim.SGD, Adam, RMSprop or Adagrad. A tensor without a gradient is left alone."""

    rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    kind: str = "SGD"
    epsilon: float | None = None  # torch's own.
    state: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)

    def step(self, values: Tensors, gradients: Gradients) -> None:
        epsilon = self.epsilon or (1e-10 if self.kind == "Adagrad" else 1e-8)
        for i, own in enumerate(gradients):
            if own is None:
                continue
            gradient = own + self.weight_decay * values[i]
            kept = self.state.setdefault(i, {"first": np.zeros_like(gradient), "second": np.zeros_like(gradient)})
            count = self.steps[i] = self.steps.get(i, 0) + 1
            if self.kind == "RMSprop":
                kept["second"] = 0.99 * kept["second"] + 0.01 * gradient**2
                kept["first"] = self.momentum * kept["first"] + gradient / (np.sqrt(kept["second"]) + epsilon)
                values[i] = values[i] - self.rate * kept["first"]
            elif self.kind == "Adagrad":
                kept["second"] = kept["second"] + gradient**2
                values[i] = values[i] - self.rate * gradient / (np.sqrt(kept["second"]) + epsilon)
            elif self.kind == "Adam":
                kept["first"] = 0.9 * kept["first"] + 0.1 * gradient
                kept["second"] = 0.999 * kept["second"] + 0.001 * gradient**2
                root = np.sqrt(kept["second"] / (1 - 0.999**count)) + epsilon
                values[i] = values[i] - self.rate * kept["first"] / (1 - 0.9**count) / root
            else:
                kept["first"] = gradient if count == 1 else self.momentum * kept["first"] + gradient
                values[i] = values[i] - self.rate * kept["first"]


def copy_of(tensors: Tensors) -> Tensors:
    return [value.copy() for value in tensors]


def clipped(gradients: Gradients, most: float | None) -> Gradients:
    norm = np.sqrt(sum(float((g**2).sum()) for g in gradients if g is not None))
    if most is None or norm <= most:
        return gradients
    return [None if g is None else g * (most / (norm + 1e-6)) for g in gradients]


def average(of_workers: list[Gradients]) -> Gradients:
    """A worker without a tensor counts as zeros; a tensor that no worker has stays missing."""
    count = len(of_workers)
    return [
        None if all(g is None for g in same) else sum((0.0 if g is None else g) for g in same) / count
        for same in zip(*of_workers, strict=True)
    ]


class Model:
    """The job: `copies` and `optimizers` are the workers'."""

    def __init__(self, optimizers: list[Optimizer]) -> None:
        self.copies: list[Tensors] = [[] for _ in optimizers]
        self.optimizers = optimizers
        self.alive = list(range(len(optimizers)))

    def begin(self, first: Tensors) -> None:
        """All have the same parameters."""
        self.copies = [copy_of(first) for _ in self.optimizers]

    def change(self, worker: int, tensor: int, value: float) -> None:
        """The program writes to its copy."""
        self.copies[worker][tensor][...] = value


class Synchronous(Model):
    """sync, sync:continue."""

    def step(self, gradients: dict[int, Gradients], most: float | None) -> None:
        mean = clipped(average([gradients[worker] for worker in self.alive]), most)
        for worker in self.alive:
            self.optimizers[worker].step(self.copies[worker], mean)


class Held(Model):
    """async, bounded:S, backup:N: the servers hold the parameters."""

    server: Tensors

    def begin(self, first: Tensors) -> None:
        super().begin(first)
        self.server = copy_of(first)

    def step(self, gradients: dict[int, Gradients], most: float | None) -> None:
        """Of these workers at once: the average of what their optimizers have changed is added."""
        changes = []
        for worker, own in sorted(gradients.items()):
            before = copy_of(self.copies[worker])
            self.optimizers[worker].step(self.copies[worker], clipped(own, most))
            changes.append([after - b for after, b in zip(self.copies[worker], before, strict=True)])
        for i, same in enumerate(zip(*changes, strict=True)):
            self.server[i] = self.server[i] + sum(same) / len(changes)
        self.take(list(gradients))

    def take(self, workers: list[int]) -> None:
        """They get the servers' parameters; also all that a step that came too late does, and settle()."""
        for worker in workers:
            self.copies[worker] = copy_of(self.server)

    def settle(self) -> None:
        self.take(self.alive)


class Served(Held):
    """on="servers", whatever the consistency: the job's only optimizer steps on the servers."""

    def step(self, gradients: dict[int, Gradients], most: float | None) -> None:
        """Of these workers at once, each of which clips its own."""
        mean = average([clipped(own, most) for _, own in sorted(gradients.items())])
        self.optimizers[0].step(self.server, mean)
        self.take(list(gradients))


class Local(Model):
    """local:K, and with an outer optimizer."""

    def __init__(self, optimizers: list[Optimizer], steps: int, outer: Optimizer, nesterov: bool) -> None:
        super().__init__(optimizers)
        self.common: Tensors = []
        self.steps, self.outer, self.nesterov = steps, outer, nesterov
        self.alone = [0] * len(optimizers)
        self.stepped: list[set[int]] = [set() for _ in optimizers]
        self.velocity: dict[int, np.ndarray] = {}

    def begin(self, first: Tensors) -> None:
        super().begin(first)
        self.common = copy_of(first)

    def step(self, worker: int, gradients: Gradients, most: float | None) -> bool:
        """Whether the worker waits for a round now."""
        self.optimizers[worker].step(self.copies[worker], clipped(gradients, most))
        self.alone[worker] += 1
        self.stepped[worker] |= {i for i, gradient in enumerate(gradients) if gradient is not None}
        return self.alone[worker] == self.steps

    def round(self) -> None:
        """All wait: the average of what those with steps have changed goes through the outer optimizer."""
        givers = [worker for worker in self.alive if self.alone[worker] > 0]
        for i in range(len(self.common)):
            changes = [self.common[i] - self.copies[worker][i] for worker in givers]
            if any(i in self.stepped[worker] for worker in givers) or any(change.any() for change in changes):
                mean = sum(changes) / len(givers)
                self.velocity[i] = self.outer.momentum * self.velocity.get(i, 0.0) + mean
                mean = mean + self.outer.momentum * self.velocity[i] if self.nesterov else self.velocity[i]
                self.common[i] = self.common[i] - self.outer.rate * mean
        for worker in self.alive:
            self.copies[worker] = copy_of(self.common)
            self.alone[worker], self.stepped[worker] = 0, set()
