"""This process's place in its job, and the job's timeline and counters, with Horovod's functions."""

from __future__ import annotations

from gyre._runtime import current
from gyre.core import _core


def rank() -> int:
    """This process's number, from 0 to size() - 1. Like all of these: ShutDownError before init()."""
    return current().place["rank"]


def size() -> int:
    """How many ranks the job has."""
    return current().place["size"]


def local_rank() -> int:
    """This process's number among the ranks of its host."""
    return current().place["local_rank"]


def local_size() -> int:
    """How many ranks this host has."""
    return current().place["local_size"]


def cross_rank() -> int:
    """The number of this host among the hosts that have a rank with this local_rank()."""
    return current().place["cross_rank"]


def cross_size() -> int:
    """How many hosts have a rank with this local_rank()."""
    return current().place["cross_size"]


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks."""
    return current().place["is_homogeneous"]


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """From now on rank 0 writes a Chrome trace of all operations to the file. `mark_cycles`: also marks the moments
    at which the ranks have agreed on what comes next."""
    current().core.start_timeline(file_path, mark_cycles)


def statistics() -> _core.Statistics:
    """This rank's counters since init(): per lane bytes, waits and work; per optimizer when each bucket was ready
    and exchanged in the last step, and how much of the exchange was hidden behind backward. An optimizer appears
    among the plans from the end of its first step. Times in seconds; the keys are those of gyre/engine/statistics.h."""
    return current().core.statistics()


def stop_timeline() -> None:
    """Completes the file that start_timeline() began."""
    current().core.stop_timeline()
