"""The default runtime of this process: the one piece of process-wide state in Gyre, because init() has no argument."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gyre import _step_record
from gyre._unfinished import Unfinished
from gyre.core import _core, metrics
from gyre.errors import (
    AbortedError,
    Error,
    InvalidArgumentError,
    MismatchError,
    PeerLeftError,
    PeerLostError,
    ShutDownError,
    UnsupportedError,
)

# Errors that every rank of a failing job gets by itself: if a rank dies of one of these, the others learn nothing new.
SHARED_FAILURES = (AbortedError, MismatchError, PeerLeftError, PeerLostError, ShutDownError)

# Of a timeline: what the program waits for; see gyre/engine/internal/lane_work.h.
_PROGRAM_ROW = "gyre: program"

# A job makes fewer operations of one kind than this between two joins.
_NUMBERS_PER_JOIN = 10**12


class Runtime:
    """This process as a rank of its job, with the Python side's state for it. Thread-safe."""

    def __init__(self, core: _core.Runtime, *, whole: Runtime | None = None, set_id: int = 0) -> None:
        """`whole`: the runtime that this one is a subset of, under `set_id`."""
        self.core = core
        self.run_in_memory = core.run_in_memory  # Bound once, because small operations are frequent.
        self.set_id = set_id
        self.place = core.place
        self._lock = threading.Lock()
        self._counters: dict[str, Iterator[int]] = {}
        self._joins = 0
        self._subsets: weakref.WeakSet[Runtime] = weakref.WeakSet()
        self.unfinished = Unfinished()
        self.process_sets: dict[int, Any] = {}  # Kept by gyre._job.process_sets, by number;
        self.sets_made = 0  # counted from 1.
        self.kept_by_interfaces: dict[str, Any] = {}  # What one keeps for as long as this runtime, by its name.
        self._whole = whole
        # Of the live optimizers, including those of subsets: a parameter is exchanged by at most one of them.
        self._exchanges: weakref.WeakSet[Any] = weakref.WeakSet()
        metrics.joined(core)

    @property
    def rank(self) -> int:
        return self.place["rank"]

    @property
    def size(self) -> int:
        return self.place["size"]

    @property
    def job_rank(self) -> int:
        """This process's rank in the whole job."""
        return (self._whole or self).rank

    def next_number(self, kind: str) -> int:
        """1, 2, … for each kind, for names that agree between ranks that make them in the same order."""
        counter = self._counters.get(kind)
        if counter is None:  # A thread that arrives at the same time gets the same one.
            counter = self._counters.setdefault(kind, itertools.count(self._joins * _NUMBERS_PER_JOIN + 1))
        return next(counter)

    def add_exchange(self, exchange: Any) -> None:
        """A new optimizer's; it is forgotten when the optimizer is destroyed."""
        if self._whole is not None:
            return self._whole.add_exchange(exchange)
        with self._lock:  # A set must not grow while another thread copies it.
            return self._exchanges.add(exchange)

    def exchanges(self) -> list[Any]:
        """Those of all live optimizers of the job, whatever their process sets."""
        if self._whole is not None:
            return self._whole.exchanges()
        with self._lock:
            return list(self._exchanges)

    def align_numbers(self) -> None:
        """All ranks have joined, after unequal numbers of operations: from here on their counters agree again."""
        with self._lock:
            self._joins += 1
            self._counters = {}

    def subset(self, ranks: Sequence[int], set_id: int, name: str) -> Runtime:
        """These ranks as a runtime of their own, numbered in the order given: see _core.Runtime.subset. Collective
        among them alone. Each creator of sets takes `set_id` from a range of its own: process sets start at 1 << 24."""
        part = Runtime(self.core.subset(ranks, set_id, name), whole=self, set_id=set_id)
        with self._lock:
            self._subsets.add(part)
        return part

    def wait_for(self, wait: Callable[[], object], what: str) -> None:
        """Calls `wait`, and shows in the timeline, where that runs, that the program waited."""
        core = self.core
        if not core.timeline_runs():
            wait()
            return
        began_ns = time.perf_counter_ns()
        try:
            wait()
        finally:
            core.add_to_timeline(_PROGRAM_ROW, "WAIT_FOR_EXCHANGE", what, began_ns, time.perf_counter_ns())

    def abort(self, reason: str) -> None:
        """Fails what every rank waits for, now and later."""
        self.core.abort(reason)
        for runtime in (self, *self._subsets):
            for kept in runtime.kept_by_interfaces.values():
                getattr(kept, "abort", lambda: None)()

    def shutdown(self) -> None:
        with self._lock:
            subsets = list(self._subsets)
        for part in subsets:
            part.shutdown()
        for process_set in self.process_sets.values():
            process_set.forget()
        self.process_sets.clear()
        for kept in self.kept_by_interfaces.values():
            getattr(kept, "shutdown", lambda: None)()
        metrics.leaving(self.core)
        self.core.shutdown()
        for kept in self.kept_by_interfaces.values():
            getattr(kept, "join_threads", lambda: None)()
        for exchange in self.exchanges():
            if exchange.runtime is self:
                exchange.end_with_runtime()
        self.unfinished.clear()


class _Default:
    """The runtime that init() made, and the process that it was made in."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runtime: Runtime | None = None
        self.forked_from: int | None = None
        self.exit_hook_registered = False


_default = _Default()


def init() -> None:
    """Makes this process a rank of the job that its launcher describes (`gyre run`, torchrun, mpirun or srun).

    Without a launcher it becomes a job of one rank. Returns when all ranks have joined. A second call does nothing;
    after shutdown() it joins again. Errors: gyre.errors.TimeoutError names the ranks that did not join;
    InvalidArgumentError names the invalid environment variable. Thread-safe.
    """
    with _default.lock:
        if _default.forked_from is not None:
            raise _fork_error(_default.forked_from)
        if _default.runtime is not None:
            return
        refuse_second_import()
        _default.runtime = Runtime(_start())
        _step_record.start_from_environment(_default.runtime.rank)
        if not _default.exit_hook_registered:
            atexit.register(_shutdown_at_exit, os.getpid())
            _default.exit_hook_registered = True


def _start() -> _core.Runtime:
    try:
        return _core.start()
    except InvalidArgumentError as error:
        # Processes spawned by multiprocessing do not inherit the descriptors that the launcher gave to the rank.
        if _multiprocessing_parent() is None:
            raise
        raise UnsupportedError(
            f"{_child_words()} It cannot take part in the job; only the process that `gyre run` has started can."
        ) from error


def _multiprocessing_parent() -> int | None:
    """The process that started this one through multiprocessing, if any."""
    process = sys.modules.get("multiprocessing.process")
    parent = process.parent_process() if process is not None else None
    if parent is not None:
        return int(parent.pid)
    # While a spawned child imports the script, multiprocessing has not recorded its parent yet. A fork server, if one
    # was used, is in between.
    return os.getppid() if _imports_again() and "multiprocessing.forkserver" not in sys.modules else None


def _imports_again() -> bool:
    """Whether this is a child spawned by multiprocessing, in what multiprocessing's own error calls the bootstrapping
    phase."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and bool(getattr(process.current_process(), "_inheriting", False))


def _child_words() -> str:
    rank = os.environ.get("GYRE_RANK", os.environ.get("RANK", ""))
    parent = _multiprocessing_parent()
    process = "another process" if parent is None else f"process {parent}"
    whose = f"rank {rank}" + ("" if parent is None else f" ({process})") if rank else process
    return f"This process ({os.getpid()}) is a child of {whose}: multiprocessing, or a DataLoader, has started it."


def refuse_second_import() -> None:
    """A child spawned by multiprocessing imports the script again, and a script without a main guard would become a
    rank again. UnsupportedError says how to add one."""
    if _imports_again():
        raise UnsupportedError(
            f"{_child_words()} It imports the script again: put the script's top-level code under `if "
            "__name__ == '__main__':`, so that children do not run it."
        )


def shutdown() -> None:
    """Leaves the job in good order: operations in flight here fail with ShutDownError, and other ranks that need this
    one fail with PeerLeftError. Does nothing if there is nothing to shut down. Thread-safe."""
    with _default.lock:
        if _default.forked_from is not None:
            return
        runtime, _default.runtime = _default.runtime, None
    if runtime is not None:
        runtime.shutdown()


def is_initialized() -> bool:
    """Whether init() has been called in this process, and shutdown() has not."""
    return _default.runtime is not None and _default.forked_from is None


def current_or_none() -> Runtime | None:
    """The runtime that init() made in this process; None if there is none."""
    return _default.runtime if _default.forked_from is None else None


def current() -> Runtime:
    """The runtime that init() made. ShutDownError when there is none."""
    if _default.forked_from is not None:
        raise _fork_error(_default.forked_from)
    runtime = _default.runtime
    if runtime is None:
        raise ShutDownError("Gyre has not been initialized in this process; call init() first.")
    return runtime


def _fork_error(parent: int) -> UnsupportedError:
    return UnsupportedError(
        f"process {os.getpid()} is a fork of process {parent}, which is the member of the job. A forked process "
        "(such as a DataLoader worker) cannot take part in collectives; call them in the process that called init()."
    )


def _after_fork_in_child() -> None:
    _default.lock = threading.Lock()
    if _default.runtime is not None and _default.forked_from is None:
        # The runtime stays referenced: its threads are in the parent, so it must not be destroyed here.
        _default.forked_from = os.getppid()


def _is_shared(failure: object) -> bool:
    """Whether other ranks know of this failure too."""
    if isinstance(failure, SHARED_FAILURES):
        return True
    # DDP's reducer, which is C++, keeps only the text of our exception.
    return any(f"running the callback: {kind.__name__}: " in str(failure) for kind in SHARED_FAILURES)


def last_words() -> str | None:
    """Why the script is ending, if it ends with an exception that the other ranks cannot know of."""
    failure = getattr(sys, "last_value", None)
    if failure is None or hasattr(sys, "ps1") or _is_shared(failure):
        return None
    lines = str(failure).splitlines()
    return f"{type(failure).__name__}: {lines[0]}" if lines else type(failure).__name__


def failure_descriptor() -> int | None:
    """The pipe on which `gyre run` receives possible causes of a failure: see docs/guide/launchers.md."""
    if not _core.is_started_by_gyre_run():  # Perhaps a torchrun inside, whose ranks `gyre run` does not know.
        return None
    text = os.environ.get("GYRE_FAILURE_FD", "")
    return int(text) if text.isdecimal() else None


def announce_end() -> None:
    """Notifies `gyre run` that this process, which has been a rank, is about to end, before the other ranks can notice
    it and fail because of it. Not if it ends because of them: the notification of the cause may still be on its way."""
    if _is_shared(getattr(sys, "last_value", None)):
        return
    descriptor, rank = failure_descriptor(), os.environ.get("GYRE_RANK", "")
    if descriptor is not None and rank.isdecimal():
        _core.announce_end(descriptor, int(rank))


def _shutdown_at_exit(process: int) -> None:
    runtime = _default.runtime
    if runtime is None or os.getpid() != process:
        return
    announce_end()
    try:
        words = last_words()
        if words is not None and runtime.size > 1:
            runtime.abort(f"rank {runtime.rank} (process {process}) ended with {words}")
        shutdown()
    except Error as error:
        # The interpreter is shutting down: an exception would reach nobody.
        print(f"gyre: rank {runtime.rank} could not leave the job in good order: {error}", file=sys.stderr)


os.register_at_fork(after_in_child=_after_fork_in_child)
