"""join(): for ranks with unequal amounts of data."""

from __future__ import annotations

from gyre.torch.process_sets import ProcessSet, global_process_set, runtime_of


def join(
    device: int = -1,
    *,
    process_set: ProcessSet = global_process_set,
    every_operation: bool = False,
    divide_by_contributors: bool = False,
) -> int:
    """This rank has run out of data: it stays here until all ranks have called join(), while the others go on.

    Meanwhile their allreduces (also DistributedOptimizer's) and barriers take place without a contribution from this
    rank: zeros to a sum or average, nothing to a minimum, maximum or product. Every other operation fails on the ranks
    that call it (UnsupportedError), as Horovod's do; with `every_operation` they work too: this rank has no rows in
    allgather and alltoall (what is sent to it is dropped) and may not be the root of a broadcast. Averages are over all
    ranks, or with `divide_by_contributors` (given by any rank that has joined) over those that have not joined; of
    a DistributedOptimizer by its own divide_by_contributors.

    Returns the rank that joined last, the same on all ranks: the one whose state to broadcast. CallOrderError
    between backward() and step(); PeerLeftError when a rank shuts down without joining. `device` is for Horovod's sake.
    """
    del device
    runtime = runtime_of(process_set, "join")
    for exchange in sorted(runtime.exchanges, key=lambda one: one.place):
        if exchange.runtime is runtime:
            exchange.prepare_join()
    joined = runtime.core.begin_join(every_operation=every_operation, divide_by_contributors=divide_by_contributors)
    last = joined.wait()
    runtime.align_numbers()
    ranks = process_set.ranks
    return ranks[last] if ranks else last
