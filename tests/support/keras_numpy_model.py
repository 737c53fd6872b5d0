"""What ranks that train a small network with Keras must arrive at: written in NumPy from the documentation, without
Keras and without Gyre. Two layers, mean squared error, every rank's own batches.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]

INPUTS, HIDDEN, OUTPUTS = 5, 6, 2
SHAPES = [(INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, OUTPUTS), (OUTPUTS,)]
EPSILON = 1e-7  # Keras's.


@dataclass(frozen=True)
class Program:
    """One training. Options are named as in Keras and in gyre.keras."""

    seed: int
    members: list[list[int]]  # The ranks that train together: all, or a process set and each other rank by itself.
    optimizer: str  # Of Keras.
    optimizer_options: dict[str, Any]
    options: dict[str, Any]  # Of DistributedOptimizer, without groups,
    groups: int | list[list[int]] | None  # and these, by the numbers of the trained variables.
    counts: list[int]  # Samples of each rank.
    batch: int
    epochs: int
    trained: list[int]  # Variables; the others are frozen.
    local: list[int]  # Variables that each rank trains by itself.
    sums: bool  # op=Sum instead of Average.


def values(seed: int) -> list[Array]:
    """Of all variables."""
    random = numpy.random.default_rng(seed)
    return [0.7 * random.standard_normal(shape) for shape in SHAPES]


def samples(seed: int, rank: int, count: int) -> tuple[Array, Array]:
    """Inputs and targets."""
    random = numpy.random.default_rng([seed, rank])
    return random.standard_normal((count, INPUTS)), random.standard_normal((count, OUTPUTS))


@dataclass
class Replica:
    """What one rank holds."""

    values: list[Array]
    moments: list[list[Array]] = field(init=False)  # Two for each variable.
    sums: list[Array] = field(init=False)  # Of passes since the last step.
    passes: int = 0
    calls: int = 0  # Of the optimizer.

    def __post_init__(self) -> None:
        self.moments = [[numpy.zeros_like(one), numpy.zeros_like(one)] for one in self.values]
        self.forget_passes()

    def forget_passes(self) -> None:
        self.sums, self.passes = [numpy.zeros_like(one) for one in self.values], 0


def gradients(weights: list[Array], inputs: Array, targets: Array) -> list[Array]:
    first, first_bias, second, second_bias = weights
    hidden = numpy.tanh(inputs @ first + first_bias)
    error = 2 * (hidden @ second + second_bias - targets) / targets.size
    inner = (error @ second.T) * (1 - hidden**2)
    return [inputs.T @ inner, inner.sum(0), hidden.T @ error, error.sum(0)]


def train(program: Program) -> list[Replica]:
    """The replica of each rank at the end. All begin with rank 0's values."""
    ranks: list[Replica] = [Replica(values(program.seed)) for _ in program.counts]
    for _ in range(program.epochs):
        for members in program.members:
            _epoch(program, ranks, members)
    return ranks


def _epoch(program: Program, ranks: list[Replica], members: list[int]) -> None:
    batches = {rank: math.ceil(program.counts[rank] / program.batch) for rank in members}
    for number in range(max(batches.values())):
        active = {rank: ranks[rank] for rank in members if number < batches[rank]}
        own = {}
        for rank, replica in active.items():
            inputs, targets = samples(program.seed, rank, program.counts[rank])
            part = slice(number * program.batch, (number + 1) * program.batch)
            own[rank] = gradients(replica.values, inputs[part], targets[part])
        _call_optimizers(program, active, own, len(members))
    if len(set(batches.values())) > 1:
        last = max(members, key=lambda rank: batches[rank])
        for rank in members:
            ranks[rank] = copy.deepcopy(ranks[last])
            ranks[rank].forget_passes()


def _call_optimizers(program: Program, active: dict[int, Replica], own: dict[int, list[Array]], size: int) -> None:
    """`size`: ranks that train together, also those that have no batch any more."""
    passes = program.options.get("backward_passes_per_step", 1)
    for rank, replica in active.items():
        replica.calls += 1
        replica.passes += 1
        replica.sums = [total + one for total, one in zip(replica.sums, own[rank], strict=True)]
    if next(iter(active.values())).passes < passes:
        return
    factor = 1 / passes if program.options.get("average_aggregated_gradients", False) else 1.0
    means = [
        factor * sum(replica.sums[index] for replica in active.values()) / (1 if program.sums else size)
        for index in range(len(SHAPES))
    ]
    for replica in active.values():
        reduced = {index: means[index] for index in program.trained}
        for index in program.local:
            share = size if program.options.get("scale_local_gradients", True) else 1
            reduced[index] = factor * replica.sums[index] / share
        replica.forget_passes()
        _apply(program, replica, reduced)


def _apply(program: Program, replica: Replica, reduced: dict[int, Array]) -> None:
    """One call of Keras's optimizer: clipping, weight decay, update."""
    options = program.optimizer_options
    steps = options.get("gradient_accumulation_steps", 1)
    kept: dict[int, Array] = vars(replica).setdefault("kept", {})  # By Keras's accumulation.
    for index, gradient in reduced.items():
        kept[index] = kept.get(index, 0.0) + gradient
    if replica.calls % steps:
        return
    reduced = {index: kept.pop(index) / steps for index in reduced}
    if "clipnorm" in options:
        reduced = {index: _clipped(one, options["clipnorm"], _norm([one])) for index, one in reduced.items()}
    elif "global_clipnorm" in options:
        norm = _norm(list(reduced.values()))
        reduced = {index: _clipped(one, options["global_clipnorm"], norm) for index, one in reduced.items()}
    elif "clipvalue" in options:
        reduced = {
            index: numpy.clip(one, -options["clipvalue"], options["clipvalue"]) for index, one in reduced.items()
        }
    rate = options["learning_rate"]
    for index, gradient in reduced.items():
        replica.values[index] = replica.values[index] * (1 - rate * options.get("weight_decay", 0.0))
        replica.values[index] += _update(
            program.optimizer, options, replica.moments[index], gradient, replica.calls // steps
        )


def _norm(parts: list[Array]) -> float:
    return math.sqrt(sum(float((part**2).sum()) for part in parts))


def _clipped(gradient: Array, most: float, norm: float) -> Array:
    return gradient * most / max(norm, most)


def _update(optimizer: str, options: dict[str, Any], moments: list[Array], gradient: Array, calls: int) -> Array:
    """What is added to the variable. `calls`: of the optimizer, with this one. Changes the moments."""
    rate, momentum = options["learning_rate"], options.get("momentum", 0.0)
    if optimizer == "SGD":
        moments[0] = momentum * moments[0] - rate * gradient
        return momentum * moments[0] - rate * gradient if options.get("nesterov", False) else moments[0]
    if optimizer == "Adam":
        first, second = 0.9, 0.999  # Keras's defaults.
        moments[0] = first * moments[0] + (1 - first) * gradient
        moments[1] = second * moments[1] + (1 - second) * gradient**2
        rate *= math.sqrt(1 - second**calls) / (1 - first**calls)
        return -rate * moments[0] / (numpy.sqrt(moments[1]) + EPSILON)
    assert optimizer == "RMSprop"
    moments[1] = 0.9 * moments[1] + 0.1 * gradient**2
    moments[0] = momentum * moments[0] + rate * gradient / numpy.sqrt(moments[1] + EPSILON)
    return -moments[0]
