"""Sets of ranks that exchange among themselves: `process_set=` of every operation and of DistributedOptimizer.

A set has an engine of its own, so its operations never wait for ranks outside it; a rank can be in many sets. In a job
over several hosts a set uses shared memory and links just as the whole job does.
"""

from __future__ import annotations

import importlib
import operator
from typing import Any

from gyre import _runtime
from gyre._runtime import Runtime, current
from gyre.errors import InvalidArgumentError

GLOBAL_ID = 0


class ProcessSet:
    """Ranks of the job, ascending. Usable once init() or add_process_set() has registered it, until shutdown()."""

    def __init__(self, ranks_or_comm: Any) -> None:
        """`ranks_or_comm`: rank numbers, or an mpi4py communicator (whose ranks are MPI.COMM_WORLD's), kept as
        `mpi_comm`."""
        self.mpi_comm = ranks_or_comm if hasattr(ranks_or_comm, "Get_group") else None
        self._asked_for = _ranks_of(ranks_or_comm)
        self._registered_with: Runtime | None = None
        self._runtime: Runtime | None = None  # None on ranks that are not in the set.
        self._id: int | None = None

    @property
    def process_set_id(self) -> int | None:
        """0 for the global set, 1, 2, … in the order of registration; None while it is not registered."""
        return self._id if self._registered() else None

    @property
    def ranks(self) -> list[int]:
        """The members' numbers in the job. For the global set: empty before init()."""
        return list(self._asked_for)

    def size(self) -> int | None:
        """How many ranks it has; None while it is not registered."""
        return len(self._asked_for) if self._registered() else None

    def rank(self) -> int | None:
        """This process's number within the set; None while it is not registered. InvalidArgumentError (a ValueError)
        on a rank outside the set."""
        if not self._registered():
            return None
        if self._runtime is None:
            raise InvalidArgumentError(
                f"rank {current().rank} has no number in the process set {self._id} (ranks {self._asked_for}): it is "
                "not in it; ask included() first"
            )
        return self._runtime.rank

    def included(self) -> bool:
        """Whether this process is among its ranks, registered or not. ShutDownError (a ValueError) before init()."""
        return current().rank in self.ranks

    def __deepcopy__(self, memo: object) -> ProcessSet:
        """Returns itself: the copy of a model with a SyncBatchNorm works among the same ranks."""
        return self

    def __reduce__(self) -> Any:
        """When unpickled, becomes the registered set of the same ranks, if there is one."""
        return _set_of, (self.ranks,)

    def forget(self) -> None:
        """It is no longer registered."""
        self._registered_with = None
        self._runtime = None
        self._id = None

    def _registered(self) -> bool:
        return self._registered_with is not None and self._registered_with is _runtime.current_or_none()

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


class _GlobalProcessSet(ProcessSet):
    def __init__(self) -> None:
        super().__init__([])

    def __reduce__(self) -> Any:
        return "global_process_set"

    @property
    def process_set_id(self) -> int | None:
        return GLOBAL_ID

    @property
    def ranks(self) -> list[int]:
        runtime = _runtime.current_or_none()
        return [] if runtime is None else list(range(runtime.size))

    def size(self) -> int | None:
        return current().size

    def rank(self) -> int | None:
        return current().rank


def _set_of(ranks: list[int]) -> ProcessSet:
    runtime = _runtime.current_or_none()
    registered = [] if runtime is None else runtime.process_sets.values()
    return next((one for one in registered if one.ranks == ranks), None) or ProcessSet(ranks)


def _ranks_of(ranks_or_comm: Any) -> list[int]:
    if hasattr(ranks_or_comm, "Get_group"):
        MPI = importlib.import_module("mpi4py.MPI")  # noqa: N806
        group = ranks_or_comm.Get_group()
        return sorted(MPI.Group.Translate_ranks(group, list(range(group.Get_size())), MPI.COMM_WORLD.Get_group()))
    try:
        ranks = sorted(operator.index(rank) for rank in ranks_or_comm)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"a process set is made of numbers of ranks or of an mpi4py communicator, not of {ranks_or_comm!r}"
        ) from error
    if len(set(ranks)) != len(ranks):
        raise InvalidArgumentError(f"a process set holds a rank once; {ranks} does not")
    return ranks


#: All ranks of the job; what operations work on when no other set is named.
global_process_set: ProcessSet = _GlobalProcessSet()


def runtime_of(process_set: ProcessSet, what: str = "the operation") -> Runtime:
    """The runtime of the set's own ranks. InvalidArgumentError (a ValueError) if the set is not registered or this
    process is not in it; ShutDownError before init()."""
    runtime = current()
    if process_set is global_process_set:
        return runtime
    if not isinstance(process_set, ProcessSet):
        raise InvalidArgumentError(f"process_set must be a ProcessSet, not {type(process_set).__name__}")
    if process_set._registered_with is not runtime:
        raise InvalidArgumentError(
            f"{what}: the process set of ranks {process_set.ranks} is not registered; pass it to add_process_set() or "
            "to init(process_sets=[…]) on every rank first"
        )
    if process_set._runtime is None:
        raise InvalidArgumentError(
            f"{what}: rank {runtime.rank} is not in the process set {process_set.process_set_id} "
            f"(ranks {process_set.ranks}); only its members may call this"
        )
    return process_set._runtime


def root_in(process_set: ProcessSet, root_rank: int, what: str) -> int:
    """The number within the set of rank `root_rank` of the job."""
    ranks = process_set.ranks
    if root_rank not in ranks:
        raise InvalidArgumentError(
            f"{what}: root_rank {root_rank} is not one of the ranks {ranks} that take part (roots are numbered as in "
            "the whole job)"
        )
    return ranks.index(root_rank)
