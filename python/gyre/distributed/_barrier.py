"""A barrier that names who is missing. It runs over torch's store, so it works also where collectives are stuck."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from gyre.errors import PeerLostError, TimeoutError


def monitored_barrier(store: Any, rank: int, size: int, number: int, timeout: timedelta, wait_all_ranks: bool) -> None:
    """The group's `number`-th one. gyre.errors.TimeoutError on rank 0 names the first rank that did not come, or with
    `wait_all_ranks` all of them; the others fail with rank 0's words."""
    prefix = f"gyre.monitored_barrier.{number}"
    until = time.monotonic() + timeout.total_seconds()
    if rank != 0:
        store.set(f"{prefix}.{rank}", "here")
        # Rank 0 may use its whole time before it speaks.
        if not _wait(store, f"{prefix}.verdict", until + timeout.total_seconds()):
            raise TimeoutError(f"monitored_barrier: rank 0 did not come within {timeout.total_seconds():g} s")
        verdict = store.get(f"{prefix}.verdict").decode()
        if verdict:
            raise PeerLostError(f"monitored_barrier: rank 0 reports: {verdict}")
        return
    missing = []
    for other in range(1, size):
        if not _wait(store, f"{prefix}.{other}", until):
            missing.append(other)
            if not wait_all_ranks:
                break
    words = ""
    if missing:
        names = ", ".join(str(other) for other in missing)
        words = (
            f"rank{'s' if len(missing) > 1 else ''} {names} did not reach the monitored_barrier within "
            f"{timeout.total_seconds():g} s"
        )
    store.set(f"{prefix}.verdict", words)
    if words:
        raise TimeoutError(words)


def _wait(store: Any, key: str, until: float) -> bool:
    try:
        store.wait([key], timedelta(seconds=max(0.001, until - time.monotonic())))
    except RuntimeError:  # torch's DistStoreError
        if time.monotonic() < until:
            raise
        return False
    return True


def serve_torch_monitored_barrier() -> None:
    """Lets torch.distributed.monitored_barrier() take our groups too: torch's own refuses every backend but gloo."""
    module = dist.distributed_c10d
    original = module.monitored_barrier
    if getattr(original, "serves_gyre", False):
        return

    def serving(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        from gyre.distributed.process_group import ProcessGroup  # noqa: PLC0415  It imports this module.

        chosen = group if group is not None else dist.group.WORLD
        if not isinstance(chosen, ProcessGroup):
            original(group, timeout, wait_all_ranks)
            return
        if isinstance(timeout, int | float):
            timeout = timedelta(seconds=timeout)
        chosen.monitored_barrier(timeout, wait_all_ranks)

    serving.__doc__ = original.__doc__
    serving.serves_gyre = True  # type: ignore[attr-defined]
    module.monitored_barrier = serving
    dist.monitored_barrier = serving
