"""The benchmark of collectives that only move data, for all libraries."""

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

_ROOT = 0
_BOUND_BYTES = 64 << 20
_BOUND_ROUNDS = 9


@dataclass(frozen=True)
class Moves:
    """The operations, on tensors as Ranks.native() returns them: `target` and `source`; a broadcast has one tensor."""

    allgather: Callable[[Any, Any], object]
    alltoall: Callable[[Any, Any], object]
    broadcast: Callable[[Any, int], object]


def torch_moves() -> Moves:
    """Those of torch.distributed, for its default group."""
    import torch.distributed as dist  # noqa: PLC0415 - after the group is joined

    return Moves(dist.all_gather_into_tensor, dist.all_to_all_single, dist.broadcast)


@dataclass(frozen=True)
class _Case:
    """One operation of one size: `call(turn)` runs it on rotating buffers, `check(turn)` says whether it was right."""

    call: Callable[[int], object]
    check: Callable[[int], bool]
    buffers: int


def _case(operation: str, size_bytes: int, effort: Effort, ranks: Ranks, moves: Moves) -> _Case:
    target_bytes = size_bytes * (ranks.size if operation == "allgather" else 1)
    count = min(max(effort.rotation_bytes // (size_bytes + target_bytes), 2), MOST_BUFFERS)
    sources = [torch.full([size_bytes], ranks.rank + 1, dtype=torch.uint8) for _ in range(count)]
    native_sources = [ranks.native(source) for source in sources]
    if operation == "broadcast":
        return _Case(
            lambda turn: moves.broadcast(native_sources[turn % count], _ROOT),
            lambda turn: bool((sources[turn] == _ROOT + 1).all()),
            count,
        )
    targets = [torch.zeros(target_bytes, dtype=torch.uint8) for _ in range(count)]
    native_targets = [ranks.native(target) for target in targets]
    function = moves.allgather if operation == "allgather" else moves.alltoall
    expected = torch.arange(1, ranks.size + 1, dtype=torch.uint8).repeat_interleave(target_bytes // ranks.size)
    return _Case(
        lambda turn: function(native_targets[turn % count], native_sources[turn % count]),
        lambda turn: torch.equal(targets[turn], expected),
        count,
    )


def measure(operation: str, size_bytes: int, effort: Effort, ranks: Ranks, moves: Moves) -> float:
    """Median microseconds of one operation. `size_bytes`: what each rank contributes (allgather), sends in all
    (alltoall) or receives (broadcast)."""
    case = _case(operation, size_bytes, effort, ranks, moves)

    def once(turn: int) -> float:
        start = time.perf_counter()
        case.call(turn)
        return (time.perf_counter() - start) * 1e6

    for turn in range(WARM_UP):
        once(turn)
    rounds = rounds_for(once(WARM_UP), effort, ranks)
    times = [once(turn) for turn in range(rounds)]
    if not all(case.check(turn) for turn in range(min(case.buffers, rounds))):
        raise SystemExit(f"wrong answer: {operation} of {size_bytes} bytes")
    return statistics.median(times)


def measure_copies(ranks: Ranks) -> float:
    """Bytes per second of a copy outside the cache, while all ranks copy; as rank 0 sees it."""
    source, target = torch.ones(_BOUND_BYTES, dtype=torch.uint8), torch.zeros(_BOUND_BYTES, dtype=torch.uint8)
    times = []
    for _ in range(_BOUND_ROUNDS):
        ranks.meet()
        start = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - start)
    ranks.meet()
    return _BOUND_BYTES / statistics.median(times)


def main(join: Callable[[str], AbstractContextManager[Ranks]], make: Callable[[], Moves]) -> None:
    parser = arguments_parser()
    parser.add_argument("--sizes", required=True, help="in bytes, separated by commas")
    parser.add_argument("--operations", required=True, help="separated by commas")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    with join(arguments.store) as ranks:
        moves = make()
        figures: dict[str, Any] = {"bound_bytes_per_second": measure_copies(ranks)}
        for operation in arguments.operations.split(","):
            figures[operation] = {}
            for size in sizes:
                ranks.meet()
                figures[operation][str(size)] = measure(operation, size, effort_of(arguments), ranks, moves)
        if ranks.rank == 0:
            write_result(arguments.result, figures)
