"""Code shared by every rank's program: rotating buffers, repeating for a while, taking the median, checking the
result."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from gyre.bench.ranks.groups import Ranks

MOST_BUFFERS = 1024
_MOST_ROUNDS = 2000
WARM_UP = 3


@dataclass(frozen=True)
class Effort:
    """How long (0: once), how many times at least otherwise, and over how much memory one figure is measured."""

    seconds: float
    fewest_rounds: int
    rotation_bytes: int


def effort_of(arguments: argparse.Namespace) -> Effort:
    return Effort(arguments.seconds, arguments.fewest_rounds, arguments.rotation_bytes)


def arguments_parser() -> argparse.ArgumentParser:
    """A parser with the arguments of every program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("--rotation-bytes", type=int, default=64 << 20)
    parser.add_argument("--fewest-rounds", type=int, default=5)
    parser.add_argument("--store", help="where gloo's ranks meet")
    return parser


def write_result(path: Path, figures: object) -> None:
    path.write_text(json.dumps(figures))


def rounds_for(once_us: float, effort: Effort, ranks: Ranks) -> int:
    """How often to repeat something that takes this long; rank 0 decides."""
    wanted = int(effort.seconds * 1e6 / max(once_us, 0.1))
    fewest = effort.fewest_rounds if effort.seconds > 0 else 1
    return ranks.from_rank_0(min(max(wanted, fewest), _MOST_ROUNDS))


def measure_allreduce(size_bytes: int, effort: Effort, ranks: Ranks) -> float:
    """Median microseconds of an allreduce (a sum, in place) over rotating float32 buffers of `size_bytes`."""
    count = size_bytes // 4
    buffer_count = min(max(effort.rotation_bytes // size_bytes, 2), MOST_BUFFERS)
    buffers = [ranks.native(torch.full([count], 1.0)) for _ in range(buffer_count)]

    def once(turn: int) -> float:
        start = time.perf_counter()
        ranks.allreduce(buffers[turn % len(buffers)])
        return (time.perf_counter() - start) * 1e6

    for turn in range(WARM_UP):
        once(turn)
    rounds = rounds_for(once(WARM_UP), effort, ranks)
    times = [once(turn) for turn in range(rounds)]
    check = torch.full([count], float(ranks.rank + 1))
    ranks.allreduce(ranks.native(check))
    if not (check == ranks.size * (ranks.size + 1) / 2).all():
        raise SystemExit(f"wrong answer at {size_bytes} bytes")
    return statistics.median(times)


def measure_steps(prepare: Callable[[], None], step: Callable[[], None], effort: Effort, ranks: Ranks) -> float:
    """Median microseconds of `step`; `prepare`, before each, ends with a barrier. It does not count towards the
    figure, but towards the time limit of the measurement."""

    def once() -> float:
        prepare()
        start = time.perf_counter()
        step()
        return (time.perf_counter() - start) * 1e6

    once()
    start = time.perf_counter()
    once()
    rounds = rounds_for((time.perf_counter() - start) * 1e6, effort, ranks)
    return statistics.median(once() for _ in range(rounds))
