"""What one rank of bench/tensorflow_step.py does in every framework: steps in turns, with an exchange and without."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

RATE = 2.0**-20  # Of the update. A power of two: what it leaves can be computed exactly.
FACTOR = 0.5  # Each gradient is computed as what is given to its rank, rank + 1, times this.
_MOST_ROUNDS = 500
# The first step of a turn finds caches and memory as another kind of step has left them, and does not count.
_STEPS_OF_A_TURN = 4


@dataclass(frozen=True)
class Step:
    """`afterwards` is not timed."""

    run: Callable[[], object]
    afterwards: Callable[[], object] = lambda: None


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--tensors", type=Path, required=True, help="shapes of the gradients, in backward's order")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--store", help="prefix of the files through which TensorFlow's workers find each other")
    return parser.parse_args()


def shapes_of(file: Path) -> list[list[int]]:
    shapes: list[list[int]] = json.loads(file.read_text())
    return shapes


def after_one_step(size: int) -> float:
    """What an average over `size` ranks must leave of a variable that was 0."""
    return -RATE * FACTOR * (size + 1) / 2


@dataclass
class Times:
    """Of one kind of step, in microseconds, by round (the median of a turn of steps): until the last rank has finished
    the step, and this rank's processor time, all threads."""

    time_us: list[float] = field(default_factory=list)
    processor_us: list[float] = field(default_factory=list)


def measured(
    steps: Mapping[str, Step], seconds: float, meet: Callable[[], object], from_rank_0: Callable[[int], int]
) -> dict[str, Times]:
    """Each kind of step in turns. A machine that is slow for a while is slow in a whole round."""
    kept = {name: Times() for name in steps}

    def once(step: Step) -> tuple[float, float]:
        meet()
        start, start_of_processor = time.perf_counter(), time.process_time()
        step.run()
        meet()
        figures = time.perf_counter() - start, time.process_time() - start_of_processor
        step.afterwards()
        return figures

    def turn(name: str) -> None:
        turns = [once(steps[name]) for _ in range(_STEPS_OF_A_TURN)][1:]
        kept[name].time_us.append(statistics.median(seconds for seconds, _ in turns) * 1e6)
        kept[name].processor_us.append(statistics.median(seconds for _, seconds in turns) * 1e6)

    start = time.perf_counter()
    for name in steps:
        turn(name)
    for _ in range(from_rank_0(min(max(2, int(seconds / (time.perf_counter() - start))), _MOST_ROUNDS))):
        for name in steps:
            turn(name)
    return kept


def write_times(file: Path, times: Mapping[str, Times]) -> None:
    """By rank 0."""
    if os.environ["GYRE_RANK"] == "0":
        file.write_text(json.dumps({name: asdict(figures) for name, figures in times.items()}))
