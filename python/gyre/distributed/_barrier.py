"""A barrier that names the missing ranks. It runs over torch's store, so it works even if collectives are stuck."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from gyre.distributed._failures import of_torch
from gyre.distributed._store import word_by
from gyre.distributed._words import Words
from gyre.errors import PeerLostError, TimeoutError


def monitored_barrier(
    words: Words, rank: int, size: int, number: int, timeout: timedelta, wait_all_ranks: bool
) -> None:
    """The `number`-th barrier of the group whose ranks alone can write `words`: a store may outlive a group, and
    strangers may write into it. gyre.errors.TimeoutError on rank 0 names the first missing rank, or
    with `wait_all_ranks` all of them; the other ranks fail with rank 0's message. Both use torch's own wording."""
    arrival, report_name = f"arrival at monitored barrier {number}", f"report of monitored barrier {number}"
    until = time.monotonic() + timeout.total_seconds()
    milliseconds = round(timeout.total_seconds() * 1000)
    if rank != 0:
        words.write(arrival, rank, {})
        reached = (
            f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
            "rank 0"
        )
        # Rank 0 may use its whole timeout before it reports.
        word = word_by(words, report_name, 0, until + timeout.total_seconds())
        if word is None:
            raise of_torch(
                TimeoutError(f"{reached}: it did not come within {milliseconds} ms (the operation timed out)")
            )
        if word["report"]:
            raise of_torch(PeerLostError(f"{reached}, which reports: {word['report']}"))
        return
    missing = []
    for other in range(1, size):
        if word_by(words, arrival, other, until) is None:
            missing.append(other)
            if not wait_all_ranks:
                break
    report = ""
    if missing:
        names = ", ".join(str(other) for other in missing)
        report = (
            f"[Rank 0]: Rank{'s' if len(missing) > 1 else ''} {names} failed to pass monitoredBarrier in "
            f"{milliseconds} ms (the operation timed out)"
        )
    words.write(report_name, 0, {"report": report})
    if report:
        raise of_torch(TimeoutError(report))


def serve_torch_monitored_barrier(ours: type[Any]) -> None:
    """Makes torch.distributed.monitored_barrier() accept groups of the class `ours` too: torch's own refuses every
    backend except gloo."""
    module = dist.distributed_c10d
    original = module.monitored_barrier
    if getattr(original, "serves_gyre", False):
        return

    def serving(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        chosen = group if group is not None else dist.group.WORLD
        if not isinstance(chosen, ours):
            original(group, timeout, wait_all_ranks)
            return
        if isinstance(timeout, int | float):
            timeout = timedelta(seconds=timeout)
        chosen.monitored_barrier(timeout, wait_all_ranks)

    serving.__doc__ = original.__doc__
    serving.serves_gyre = True  # type: ignore[attr-defined]
    module.monitored_barrier = serving
    dist.monitored_barrier = serving
