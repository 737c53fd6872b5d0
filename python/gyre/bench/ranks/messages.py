"""The benchmark of messages, whoever carries them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from gyre.bench.ranks.groups import Ranks
from gyre.bench.ranks.timing import MOST_BUFFERS, WARM_UP, Effort, arguments_parser, effort_of, rounds_for, write_result


@dataclass(frozen=True)
class Messages:
    """How a tensor, or what Ranks.native makes of it, goes to another rank and comes from there. Both wait."""

    send: Callable[[Any, int], object]
    receive: Callable[[Any, int], object]


def measure(size_bytes: int, effort: Effort, ranks: Ranks, messages: Messages) -> float:
    """Median microseconds of a message of `size_bytes` from one rank to another, half of there and back, over rotating
    buffers. Rank r exchanges messages with rank r + n/2, all pairs at the same time."""
    count = min(max(effort.rotation_bytes // (2 * size_bytes), 2), MOST_BUFFERS)
    partner = (ranks.rank + ranks.size // 2) % ranks.size
    ours = [ranks.native(torch.full([size_bytes], ranks.rank + 1, dtype=torch.uint8)) for _ in range(count)]
    tensors = [torch.zeros(size_bytes, dtype=torch.uint8) for _ in range(count)]
    theirs = [ranks.native(tensor) for tensor in tensors]

    def there_and_back(turn: int) -> None:
        messages.send(ours[turn], partner)
        messages.receive(theirs[turn], partner)

    def back_and_there(turn: int) -> None:
        messages.receive(theirs[turn], partner)
        messages.send(ours[turn], partner)

    exchange = there_and_back if ranks.rank < partner else back_and_there

    def once(turn: int) -> float:
        start = time.perf_counter()
        exchange(turn % count)
        return (time.perf_counter() - start) * 1e6 / 2

    for turn in range(WARM_UP):
        once(turn)
    rounds = rounds_for(2 * once(WARM_UP), effort, ranks)
    times = [once(turn) for turn in range(rounds)]
    if not all(bool((tensor == partner + 1).all()) for tensor in tensors[:rounds]):
        raise SystemExit(f"wrong answer at {size_bytes} bytes")
    return statistics.median(times)


def main(join: Callable[[str], AbstractContextManager[Ranks]], make: Callable[[], Messages]) -> None:
    parser = arguments_parser()
    parser.add_argument("--sizes", required=True, help="in bytes, separated by commas")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    with join(arguments.store) as ranks:
        messages = make()
        times = {}
        for size in sizes:
            ranks.meet()
            times[str(size)] = measure(size, effort_of(arguments), ranks, messages)
        if ranks.rank == 0:
            write_result(arguments.result, {"tensor": times})
