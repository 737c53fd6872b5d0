"""What gyre's DistributedOptimizer does, in NumPy, for C++ and Python alike: the table in docs/guide/cpp.md says it in
words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from params_model import Optimizer

Tensors = list[np.ndarray]
Gradients = list[np.ndarray | None]


class Inner:
    """torch.optim's, of one rank or, after a broadcast, of all."""

    def __init__(self, chosen: dict[str, Any]) -> None:
        self.kind = chosen["class"]
        self.decay = chosen.get("weight_decay", 0.0)
        coupled = 0.0 if self.kind == "AdamW" else self.decay
        kind = "Adam" if self.kind == "AdamW" else self.kind
        self.base = Optimizer(chosen["lr"], chosen.get("momentum", 0.0), coupled, kind)
        self.quasi_newton = QuasiNewton()

    def step(self, values: Tensors, gradients: Gradients) -> None:
        if self.kind == "AdamW":
            for i, gradient in enumerate(gradients):
                if gradient is not None:
                    values[i] = values[i] * (1 - self.base.rate * self.decay)
        self.base.step(values, gradients)

    def minimize(self, values: Tensors, evaluate: Callable[[], tuple[float, Gradients]]) -> None:
        """A step with a closure, which evaluates the loss and the gradients at `values`."""
        if self.kind == "LBFGS":
            self.quasi_newton.step(values, evaluate, self.base.rate)
        else:
            self.step(values, evaluate()[1])


class QuasiNewton:
    """torch.optim.LBFGS with max_iter=3 and without line search."""

    MOST_ITERATIONS, MOST_EVALUATIONS = 3, 3

    def __init__(self) -> None:
        self.iterations = 0
        self.scale = 1.0
        self.pairs: list[tuple[np.ndarray, np.ndarray]] = []  # Of changes of the gradient and of the position.

    def direction(self, gradient: np.ndarray) -> np.ndarray:
        if self.iterations == 1:
            return -gradient
        change, way = gradient - self.last_gradient, self.last_direction * self.last_rate
        if change @ way > 1e-10:
            self.pairs.append((change, way))
            self.scale = (change @ way) / (change @ change)
        q = -gradient
        factors = []
        for change, way in reversed(self.pairs):
            factors.append((way @ q) / (change @ way))
            q = q - factors[-1] * change
        q = q * self.scale
        for (change, way), factor in zip(self.pairs, reversed(factors), strict=True):
            q = q + way * (factor - (change @ q) / (change @ way))
        return q

    def step(self, values: Tensors, evaluate: Callable[[], tuple[float, Gradients]], rate: float) -> None:
        loss, gradient = self.flat(values, evaluate)
        evaluations = 1
        for iteration in range(self.MOST_ITERATIONS):
            if np.abs(gradient).max() <= 1e-7:
                return
            self.iterations += 1
            direction = self.direction(gradient)
            self.last_gradient, self.last_direction, last_loss = gradient, direction, loss
            self.last_rate = min(1.0, 1.0 / np.abs(gradient).sum()) * rate if self.iterations == 1 else rate
            if gradient @ direction > -1e-9:
                return
            begin = 0
            for i, value in enumerate(values):
                part = direction[begin : begin + value.size]
                values[i] = value + self.last_rate * part
                begin += value.size
            if iteration + 1 == self.MOST_ITERATIONS or evaluations >= self.MOST_EVALUATIONS:
                return
            loss, gradient = self.flat(values, evaluate)
            evaluations += 1
            small = np.abs(direction * self.last_rate).max() <= 1e-9 or abs(loss - last_loss) < 1e-9
            if evaluations >= self.MOST_EVALUATIONS or small:
                return

    @staticmethod
    def flat(values: Tensors, evaluate: Callable[[], tuple[float, Gradients]]) -> tuple[float, np.ndarray]:
        loss, gradients = evaluate()
        parts = [np.zeros_like(v) if g is None else g for v, g in zip(values, gradients, strict=True)]
        return loss, np.concatenate(parts)


class Model:
    """The job, whose ranks are equal from the broadcast on."""

    def __init__(self, chosen: dict[str, Any], size: int) -> None:
        self.chosen, self.size = chosen, size
        self.values = [np.array(value, dtype=np.float64) for value in chosen["first"][0]]
        self.trained = set(range(len(self.values))) - set(chosen["frozen"])
        self.gradients: Gradients = [None] * len(self.values)
        self.inner = Inner(chosen["optimizer"])
        self.is_lbfgs = chosen["optimizer"]["class"] == "LBFGS"
        for gradients in chosen["resumed"]:
            self.inner.minimize(self.values, lambda own=gradients: self.alone(own))
        self.inner.base.rate = chosen.get("new_rate", self.inner.base.rate)

    def alone(self, gradients: list[Any]) -> tuple[float, Gradients]:
        """Rank 0 before it is in the job."""
        own: Gradients = [None] * len(self.values)
        loss = self.backward(own, gradients)
        return loss, own

    def backward(self, own: Gradients, gradients: list[Any]) -> float:
        loss = 0.0
        for i, given in enumerate(gradients):
            if given is None or i not in self.trained:
                continue
            target = np.array(given, dtype=np.float64)
            gradient = self.values[i] - target if self.is_lbfgs else target
            loss += float((gradient**2).sum() / 2 if self.is_lbfgs else (self.values[i] * target).sum())
            before = own[i]
            own[i] = gradient if before is None else before + gradient
        return loss

    def zero(self, set_to_none: bool) -> None:
        self.gradients = [None if g is None or set_to_none else np.zeros_like(g) for g in self.gradients]

    def exchange(self, step: dict[str, Any]) -> tuple[float, Gradients]:
        """What each rank has added up over its passes is averaged: a trainable parameter without a gradient counts as
        zeros, and gets the average, with several ranks. Frozen ones are left alone, and so is everything with one."""
        self.zero(step["set_to_none"])
        of_ranks: list[Gradients] = []
        losses = 0.0
        for rank in range(self.size):
            own = list(self.gradients)
            of_ranks.append(own)
            losses += [self.backward(own, gradients) for gradients in step["gradients"][rank]][-1]
        if self.size == 1:
            self.gradients = of_ranks[0]
        else:
            for i in self.trained:
                parts = [np.zeros_like(self.values[i]) if own[i] is None else own[i] for own in of_ranks]
                self.gradients[i] = sum(parts[1:], parts[0]) / self.size
        return losses / self.size, self.gradients

    def take(self, step: dict[str, Any]) -> None:
        self.trained = (self.trained | set(step["thawed"])) - set(step["frozen"])
        if step["way"] == "closure":
            self.inner.minimize(self.values, lambda: self.exchange(step))
            return
        self.exchange(step)
        if step["way"] == "left out":
            self.zero(step["set_to_none"])
            return
        if step["way"] == "halved":
            self.gradients = [None if g is None else g / 2 for g in self.gradients]
        self.inner.step(self.values, self.gradients)
