"""join(): for ranks with unequal amounts of data."""

from __future__ import annotations

from gyre._job.process_sets import ProcessSet, global_process_set, runtime_of


def join(
    device: int = -1,
    *,
    process_set: ProcessSet = global_process_set,
    every_operation: bool = False,
    divide_by_contributors: bool = False,
) -> int:
    """For a rank that has run out of data: it waits here until all ranks have called join(), while the others continue.

    Meanwhile their allreduces (including DistributedOptimizer's) and barriers run without a contribution from this
    rank: zeros to a sum or average, nothing to a minimum, maximum or product. Every other operation fails on the ranks
    that call it (UnsupportedError), as in Horovod; with `every_operation` they work too: this rank has no rows in
    allgather and alltoall (rows sent to it are dropped) and cannot be the root of a broadcast. Averages are over all
    ranks, or with `divide_by_contributors` (given by any rank that has joined) over those that have not joined; a
    DistributedOptimizer uses its own divide_by_contributors.

    Returns the rank that joined last, the same on all ranks, whose state to broadcast. CallOrderError between
    backward() and step(); PeerLeftError if a rank shuts down without joining. `device` is for compatibility with
    Horovod.
    """
    del device
    runtime = runtime_of(process_set, "join")
    for exchange in sorted(runtime.exchanges(), key=lambda one: one.place):
        if exchange.runtime is runtime:
            exchange.prepare_join()
    for kept in runtime.kept_by_interfaces.values():
        getattr(kept, "settle", lambda: None)()
    joined = runtime.core.begin_join(every_operation=every_operation, divide_by_contributors=divide_by_contributors)
    last = joined.wait()
    runtime.align_numbers()
    ranks = process_set.ranks
    return ranks[last] if ranks else last
