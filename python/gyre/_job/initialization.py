"""init() with Horovod's interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gyre import _runtime
from gyre._job.horovod_environment import warn_of_ignored
from gyre._job.process_set_registry import add_process_set
from gyre._job.process_sets import ProcessSet
from gyre.errors import InvalidArgumentError, UnsupportedError


def init(comm: Any = None, process_sets: str | Sequence[ProcessSet] | None = None) -> None:
    """Makes this process a rank of the job that its launcher describes: see gyre._runtime.init.

    `process_sets`: sets to register, the same list on every rank; or "dynamic" (sets can be added at any time anyway).
    `comm`: for compatibility with Horovod; all ranks of the job, as numbers or as an mpi4py communicator.
    UnsupportedError for fewer: use process sets. A second call does nothing.
    """
    if isinstance(process_sets, str) and process_sets.lower() != "dynamic":
        raise InvalidArgumentError(f'process_sets must be a list of ProcessSet or "dynamic", not {process_sets!r}')
    if _runtime.current_or_none() is not None:
        return
    warn_of_ignored()
    _runtime.init()
    size = _runtime.current().size
    asked_for = _size_of(comm)
    if asked_for is not None and asked_for != size:
        _runtime.shutdown()
        raise UnsupportedError(
            f"init(comm) with {asked_for} of the job's {size} ranks: all ranks of a job take part; for exchanges among "
            "some of them use process sets (add_process_set, process_set=)"
        )
    if process_sets is not None and not isinstance(process_sets, str):
        for process_set in process_sets:
            add_process_set(process_set)


def _size_of(comm: Any) -> int | None:
    if comm is None:
        return None
    if hasattr(comm, "Get_size"):
        return int(comm.Get_size())
    return len(list(comm)) or None
