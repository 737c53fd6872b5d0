"""torch.distributed over gloo as parameter servers: a reduce of each server's share to it, a broadcast from there."""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

from gyre.bench.ranks.groups import Ranks, gloo_ranks, leave
from gyre.bench.ranks.timing import MOST_BUFFERS, arguments_parser, effort_of, rounds_for, write_result


class _Steps:
    """Rotating buffers of a rank. The first ranks are servers, whose own gradients are zeros."""

    def __init__(self, ranks: Ranks, servers: int, size_bytes: int, rotation_bytes: int) -> None:
        own = ranks.rank - servers + 1 if ranks.rank >= servers else 0
        workers = ranks.size - servers
        self._expected = workers * (workers + 1) / 2
        count = min(max(rotation_bytes // size_bytes, 2), MOST_BUFFERS)
        self._buffers = [torch.full([size_bytes // 4], float(own)) for _ in range(count)]
        self._servers = servers
        self.count = count

    def step(self, turn: int) -> float:
        """Microseconds."""
        start = time.perf_counter()
        shares = self._buffers[turn % self.count].tensor_split(self._servers)
        for operation in (dist.reduce, dist.broadcast):
            handles = [operation(share, server, async_op=True) for server, share in enumerate(shares)]
            for handle in handles:
                handle.wait()
        return (time.perf_counter() - start) * 1e6

    def require_sums(self) -> None:
        if not all(bool((buffer == self._expected).all()) for buffer in self._buffers):
            raise SystemExit("wrong answer: a reduce and a broadcast of it")

    def clear(self) -> None:
        """Sums stay finite however many rounds there are."""
        for buffer in self._buffers:
            buffer.zero_()


def main() -> None:
    parser = arguments_parser()
    parser.add_argument("--servers", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    arguments = parser.parse_args()
    effort = effort_of(arguments)
    with gloo_ranks(arguments.store) as ranks:
        steps = _Steps(ranks, arguments.servers, arguments.bytes, effort.rotation_bytes)
        for turn in range(steps.count):
            steps.step(turn)
        steps.require_sums()
        steps.clear()
        rounds = rounds_for(steps.step(0), effort, ranks)
        times = [steps.step(turn) for turn in range(rounds)]
        if ranks.rank == 0:
            write_result(arguments.result, {"step_us": statistics.median(times)})


if __name__ == "__main__":
    main()
    leave()
