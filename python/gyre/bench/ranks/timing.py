"""What every rank's program does alike: rotate buffers, repeat for a while, take the median, check the answer."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from gyre.bench.ranks.groups import Ranks

ROTATION_BYTES = 64 << 20
_MOST_BUFFERS = 1024
_FEWEST_ROUNDS = 5
_MOST_ROUNDS = 2000
_WARM_UP = 3


def arguments_parser() -> argparse.ArgumentParser:
    """With the arguments of every program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("--store", help="where gloo's ranks meet")
    return parser


def write_result(path: Path, figures: object) -> None:
    path.write_text(json.dumps(figures))


def rounds_for(once_us: float, seconds: float, ranks: Ranks) -> int:
    """How often to repeat what takes so long; rank 0's opinion counts."""
    wanted = int(seconds * 1e6 / max(once_us, 0.1))
    return ranks.from_rank_0(min(max(wanted, _FEWEST_ROUNDS), _MOST_ROUNDS))


def measure_allreduce(size_bytes: int, seconds: float, ranks: Ranks) -> float:
    """Median microseconds of an allreduce (a sum, in place) over rotating float32 buffers of `size_bytes`."""
    count = size_bytes // 4
    buffer_count = min(max(ROTATION_BYTES // size_bytes, 2), _MOST_BUFFERS)
    buffers = [ranks.native(torch.full([count], 1.0)) for _ in range(buffer_count)]

    def once(turn: int) -> float:
        start = time.perf_counter()
        ranks.allreduce(buffers[turn % len(buffers)])
        return (time.perf_counter() - start) * 1e6

    for turn in range(_WARM_UP):
        once(turn)
    rounds = rounds_for(once(_WARM_UP), seconds, ranks)
    times = [once(turn) for turn in range(rounds)]
    check = torch.full([count], float(ranks.rank + 1))
    ranks.allreduce(ranks.native(check))
    if not (check == ranks.size * (ranks.size + 1) / 2).all():
        raise SystemExit(f"wrong answer at {size_bytes} bytes")
    return statistics.median(times)


def measure_steps(prepare: Callable[[], None], step: Callable[[], None], seconds: float, ranks: Ranks) -> float:
    """Median microseconds of `step`; `prepare`, before each, is not counted and ends with all ranks together."""

    def once() -> float:
        prepare()
        start = time.perf_counter()
        step()
        return (time.perf_counter() - start) * 1e6

    once()
    rounds = rounds_for(once(), seconds, ranks)
    return statistics.median(once() for _ in range(rounds))
