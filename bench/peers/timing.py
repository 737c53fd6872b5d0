"""What every peer's benchmark does alike: rotate buffers, repeat for a while, take the median, check the answer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

ROTATION_BYTES = 64 << 20
MOST_BUFFERS = 1024
FEWEST_ROUNDS = 5
MOST_ROUNDS = 2000
SECONDS_PER_SIZE = 0.6


def measure(
    size_bytes: int,
    rank: int,
    ranks: int,
    allreduce: Callable[[np.ndarray], None],
    from_rank_0: Callable[[int], int],
) -> float:
    """Median microseconds of `allreduce` (a sum, in place) over rotating float32 buffers of `size_bytes`."""
    count = size_bytes // 4
    buffers = [
        np.ones(count, np.float32) for _ in range(min(max(ROTATION_BYTES // max(size_bytes, 1), 2), MOST_BUFFERS))
    ]

    def once(turn: int) -> float:
        start = time.perf_counter()
        allreduce(buffers[turn % len(buffers)])
        return (time.perf_counter() - start) * 1e6

    for turn in range(3):
        once(turn)
    wanted = int(SECONDS_PER_SIZE * 1e6 / max(once(3), 0.1))
    rounds = from_rank_0(min(max(wanted, FEWEST_ROUNDS), MOST_ROUNDS))
    times = [once(turn) for turn in range(rounds)]
    check = np.full(count, rank + 1, np.float32)
    allreduce(check)
    if not (check == ranks * (ranks + 1) / 2).all():
        raise SystemExit(f"wrong answer at {size_bytes} bytes")
    return statistics.median(times)
