"""The result of a process group's operations: torch's Work over the engine's handles."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from gyre._devices.interruption import note_seen
from gyre._program_position import register_loop
from gyre._runtime import Runtime
from gyre.core import _core
from gyre.distributed._failures import of_torch
from gyre.errors import Error, InvalidArgumentError, TimeoutError

# torch's way of saying "no limit of its own".
_NO_TIMEOUT = timedelta(0)


class Completions:
    """The thread that completes the futures of a group's collectives, in the order in which they were requested,
    which is the same on every rank. It starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._works: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._added = 0
        self._settled = 0

    def add(self, work: Work) -> None:
        with self._lock:
            self._added += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._works.put(work)

    def runs_here(self) -> bool:
        """Whether the caller is on that thread: in a callback of a future."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """After the engine's shutdown, which has ended every wait."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._works.put(None)
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            work.settle()
            self._settled += 1

    def is_idle(self) -> bool:
        """Whether its thread does nothing before the next add()."""
        return self._added == self._settled


register_loop(Completions._run.__code__, lambda frame: bool(frame.f_locals["self"].is_idle()))


class MessageCompletions(Completions):
    """A thread for each message whose future was requested, so that one that does not arrive delays no other."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._threads: set[threading.Thread] = set()

    def add(self, work: Work) -> None:
        def settle() -> None:
            work.settle()
            with self._lock:
                self._threads.discard(thread)

        thread = threading.Thread(target=settle, name=self._name, daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def runs_here(self) -> bool:
        """A future that a callback waits for has a thread of its own, or is a collective's."""
        return False

    def stop(self) -> None:
        with self._lock:
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            thread.join()


class Work(dist.Work):
    """One operation in flight. Thread-safe. Its memory stays referenced until it is done, even if the caller drops
    it."""

    def __init__(
        self,
        runtime: Runtime,
        completions: Completions,
        handles: Sequence[_core.Handle | _core.MessageHandle],
        *,
        memory: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        finish: Callable[[], None] | None = None,
        timeout: timedelta = _NO_TIMEOUT,
        description: str,
    ) -> None:
        """`outputs`: the values of the future and of result(). `finish`: called once, when the engine is done and
        before the outputs are visible; may raise."""
        super().__init__()
        self._runtime = runtime
        self._completions = completions
        self._handles = handles
        self._memory = memory
        self._outputs = list(outputs)
        self._finish = finish
        self._timeout = timeout
        self._description = description
        self._lock = threading.Lock()
        self._finished = False
        self._failure: Exception | None = None
        self._trigger: Any = None
        self._future: Any = None
        self._source = -1
        if self.done():
            runtime.unfinished.let_go_of_finished()
        else:
            runtime.unfinished.add(self)

    def done(self) -> bool:
        """Whether the engine is done with it, successfully or not."""
        for handle in self._handles:  # noqa: SIM110 - a generator would take longer than the question
            if not handle.done():
                return False
        return True

    def settle(self) -> None:
        """Waits, and resolves the future if one was requested. Raises nothing."""
        try:
            self._wait_for_engine(None)
        except Exception as error:  # Kept, and raised to callers that look at the work or the future.
            self._failure = self._failure or error
        if self._trigger is not None:
            self._trigger.set_result(None)

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Sleeps until done; raises the operation's error. gyre.errors.TimeoutError after `timeout`, or after the
        operation's own; the operation then continues, and its tensors must not be used yet."""
        limit = timeout if timeout > _NO_TIMEOUT else self._timeout
        try:
            seconds = limit.total_seconds() if limit > _NO_TIMEOUT else None
            self._runtime.wait_for(lambda: self._wait_for_engine(seconds), self._description)
        except Error:
            note_seen()
            raise
        return True

    def _wait_for_engine(self, seconds: float | None) -> None:
        try:
            for handle in self._handles:
                if seconds is None:
                    handle.wait()
                elif not handle.wait_for(seconds):
                    raise TimeoutError(f"{self._description} was not done within {seconds:g} s")
        except Error as failure:
            if self.done():
                self._let_go()
            raise of_torch(failure) from None
        with self._lock:
            if not self._finished:
                self._finished = True
                try:
                    if self._finish is not None:
                        self._finish()
                except Exception as error:
                    self._failure = error
                finally:
                    self._let_go()
            if self._failure is not None:
                raise self._failure

    def _let_go(self) -> None:
        """The engine is done with the operation's memory."""
        self._memory = ()
        self._finish = None
        self._runtime.unfinished.discard(self)

    def is_completed(self) -> bool:
        if self._finished:
            return True
        if not self.done():
            return False
        try:
            self._wait_for_engine(None)
        except Exception as error:  # exception() and wait() show it.
            self._failure = self._failure or error
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self._failure is None

    def exception(self) -> Exception | None:
        return self._failure if self.is_completed() else None

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._outputs

    def source_rank(self) -> int:
        """For a receive, after wait(): the sender's rank. InvalidArgumentError for anything else."""
        self.wait()
        if self._source < 0:
            handle = self._handles[0]
            self._source = handle.take_source() if isinstance(handle, _core.MessageHandle) else -1
        if self._source < 0:
            raise InvalidArgumentError(f"{self._description}: only a receive has a source rank")
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A future for the list of output tensors; it fails with the operation's error."""
        with self._lock:
            if self._future is not None:
                return self._future
            self._trigger = torch.futures.Future()
            # A future that failed by a callback's exception has also failed for C++ waiters (DDP's reducer); one failed
            # by set_exception() has not.
            self._future = self._trigger.then(self._resolve)
            future = self._future
        # A callback that requests a future may wait for it (as PowerSGD's do), on the one thread that could complete
        # it. With a second thread, callbacks of several operations would run concurrently, and their submissions would
        # come in a different order on every rank.
        if self.done() or self._completions.runs_here():
            self.settle()
        else:
            self._completions.add(self)
        return future

    def _resolve(self, _: Any) -> list[torch.Tensor]:
        if self._failure is not None:
            raise self._failure
        return self._outputs


class WorkGroup(dist.Work):
    """Several operations as one."""

    def __init__(self, works: Sequence[dist.Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> Exception | None:
        return next((error for work in self._works if (error := work.exception()) is not None), None)

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self) -> Any:
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(lambda done: [tensor for future in done.value() for tensor in future.value()])
