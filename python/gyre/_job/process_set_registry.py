"""Adding and removing process sets while a job runs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gyre._job.arrays import barrier, gather_bytes
from gyre._job.process_sets import GLOBAL_ID, ProcessSet, global_process_set
from gyre._runtime import Runtime, current
from gyre.errors import InvalidArgumentError, MismatchError

# The number range of process sets' engines; see Runtime.subset.
_FIRST_SUBSET = 1 << 24


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Registers a set, at any time. Collective: every rank of the job calls it with the same ranks, members or not.

    InvalidArgumentError (a ValueError) for ranks that do not exist or a set that already exists; MismatchError, on
    every rank, if ranks name different sets.
    """
    runtime = current()
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    problem = _problem_of(made, runtime)
    description = json.dumps({"ranks": made.ranks, "problem": problem}).encode()
    everywhere = [json.loads(content) for content in gather_bytes(runtime, description, "process_set")]
    for rank, other in enumerate(everywhere):
        if other["ranks"] != everywhere[0]["ranks"]:
            raise MismatchError(
                f"the ranks disagree about a process set: rank 0 adds {everywhere[0]['ranks']}, rank {rank} "
                f"{other['ranks']}"
            )
    failed = next((other["problem"] for other in everywhere if other["problem"]), None)
    if failed:
        raise InvalidArgumentError(failed)
    number = runtime.sets_made = runtime.sets_made + 1
    ranks = made._asked_for
    if runtime.rank in ranks:
        made._runtime = runtime.subset(ranks, _FIRST_SUBSET + number, f"process_set.{number}")
    made._id = number
    made._registered_with = runtime
    runtime.process_sets[number] = made
    return made


def _problem_of(process_set: ProcessSet, runtime: Runtime) -> str:
    ranks = process_set.ranks
    if process_set is global_process_set or ranks == list(range(runtime.size)):
        return "a process set of all ranks already exists: global_process_set"
    if not ranks:
        return "a process set needs at least one rank"
    missing = [rank for rank in ranks if not 0 <= rank < runtime.size]
    if missing:
        return f"process set {ranks}: there is no rank {missing[0]} in a job of {runtime.size}"
    for number, other in runtime.process_sets.items():
        if other is process_set or other.ranks == ranks:
            return f"a process set of ranks {ranks} already exists: number {number}"
    return ""


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set. Collective: every rank of the job calls it. Returns False and does nothing for the global set
    and for one that is not registered. Operations in flight in the set fail. InvalidArgumentError for anything that
    is not a set."""
    if not isinstance(process_set, ProcessSet):
        raise InvalidArgumentError(f"expected a ProcessSet, got {type(process_set).__name__}")
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    runtime = current()
    barrier(runtime)  # Operations that others have begun in the set have ended, if they have waited for them.
    runtime.process_sets.pop(process_set._id or GLOBAL_ID, None)
    part = process_set._runtime
    process_set.forget()
    if part is not None:
        part.shutdown()
    barrier(runtime)
    return True


def process_set_by_id(process_set_id: int) -> ProcessSet:
    """The registered set with this number. InvalidArgumentError if there is none."""
    if process_set_id == GLOBAL_ID:
        return global_process_set
    found = current().process_sets.get(process_set_id)
    if not isinstance(found, ProcessSet):
        raise InvalidArgumentError(f"there is no process set number {process_set_id}")
    return found
