"""A barrier that names the missing ranks. It runs over torch's store, so it works even if collectives are stuck."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from gyre.distributed._failures import of_torch
from gyre.distributed._store import came
from gyre.errors import PeerLostError, TimeoutError


def monitored_barrier(
    store: Any, generation: str, rank: int, size: int, number: int, timeout: timedelta, wait_all_ranks: bool
) -> None:
    """The `number`-th barrier of the group that its ranks agreed to call `generation`: a store may outlive a group
    and keep what an earlier one has written. gyre.errors.TimeoutError on rank 0 names the first missing rank, or
    with `wait_all_ranks` all of them; the other ranks fail with rank 0's message. Both use torch's own wording."""
    prefix = f"gyre.monitored_barrier.{generation}.{number}"
    until = time.monotonic() + timeout.total_seconds()
    milliseconds = round(timeout.total_seconds() * 1000)
    if rank != 0:
        store.set(f"{prefix}.{rank}", "here")
        reached = (
            f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
            "rank 0"
        )
        # Rank 0 may use its whole timeout before it reports.
        if not came(store, f"{prefix}.report", until + timeout.total_seconds()):
            raise of_torch(
                TimeoutError(f"{reached}: it did not come within {milliseconds} ms (the operation timed out)")
            )
        report = store.get(f"{prefix}.report").decode()
        if report:
            raise of_torch(PeerLostError(f"{reached}, which reports: {report}"))
        return
    missing = []
    for other in range(1, size):
        if not came(store, f"{prefix}.{other}", until):
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
    store.set(f"{prefix}.report", report)
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
