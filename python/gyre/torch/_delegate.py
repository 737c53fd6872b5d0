"""The library of a device (NCCL) in place of Gyre's own exchange, for operations that come in any order.

Such a library pairs the ranks' calls by their order alone. The engine agrees on each operation, by its name, and on
its place among them; then every rank passes it to the library in that order (ADR 120). The order of a process set is
its own, and so is its communicator.

Nothing waits on the host for a device. It is tested on the simulated device of tests/device, with a stand-in for NCCL.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import increment_version

from gyre._devices import delegates, interruption, library_threads, meeting, progress, staging
from gyre._devices.device_watch import DeviceWatch
from gyre._devices.interruption import Callers, end_if_it_hangs, note_seen
from gyre._devices.watch import look_after
from gyre._operations import Kind
from gyre._program_position import register_loop
from gyre._runtime import Runtime
from gyre.core import _core
from gyre.errors import AbortedError, Error, ShutDownError, TimeoutError, error_from_code
from gyre.torch._delegated_call import Agreement, Call, Given, Part
from gyre.torch._submissions import OneTimeName, gathering_submission, submit_one
from gyre.torch.handle import Handle

_KEPT_AS = "gyre.torch.delegate"
# What NCCL exchanges; all else goes through host memory.
_TYPES = frozenset(
    {
        torch.uint8,
        torch.int8,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    }
)


class DelegatedHandle(Handle):
    """Its wait() returns when every rank has made the call; the caller's current stream waits for the results."""

    __slots__ = ("_call", "_delegate")

    def __init__(
        self, runtime: Runtime, delegate: Delegate, call: Call, result: Callable[[list[torch.Tensor]], Any]
    ) -> None:
        """`result`: of the handle, made of those of the call's parts."""
        self._call = call
        self._delegate = delegate

        def finish(_: object) -> Any:
            if not call.is_passed_on:
                delegate.pass_on()
            if call.failure is not None:
                note_seen()
                raise call.failure
            return call.staged.wait() if call.staged is not None else result(call.results)

        super().__init__(runtime, call.handles, None, finish)

    def done(self) -> bool:
        staged = self._call.staged
        return super().done() and (staged is None or staged.done())

    def wait(self) -> Any:
        self._delegate.callers.note()
        try:
            result = super().wait()
        except Exception:
            self._delegate.pass_on()  # It is not waited for any more.
            raise
        self._call.land()
        return result


class Delegate:
    """The library for the devices of one runtime's ranks. Thread-safe."""

    def __init__(self, runtime: Runtime, device_type: str) -> None:
        self.runtime = runtime
        self._device_type = device_type
        self._order = threading.RLock()  # Held by whoever passes calls on.
        self._lock = threading.Lock()
        self._pending: dict[Call, None] = {}
        self._group: Any = None
        self._device: torch.device | None = None  # The library's, once the ranks have met.
        self._passes_on = False
        self._has_carried_out = False  # A call: the library has started its threads.
        self._streams: dict[torch.device, torch.Stream] = {}
        self._threads: list[threading.Thread] = []
        self._has_agreed = threading.Event()
        self._ending = threading.Lock()  # Held by whoever aborts the library.
        self._ended = False  # Takes no more calls.
        self._is_over = False  # No more will be agreed on.
        self._is_closed = False
        self._failure: Error | None = None  # Of the job.
        self.callers = Callers()
        self._watch = DeviceWatch[Given](runtime, _core.longest_stall_seconds() or math.inf)

    def submit(
        self,
        parts: Sequence[Part],
        stage: Callable[[str], Handle],
        action: str,
        result: Callable[[list[torch.Tensor]], Any],
        *,
        beside: Callable[[], None] | None = None,
    ) -> DelegatedHandle:
        """`beside`: submits what the parts need from the other ranks' hosts, after them."""
        call = Call(parts, stage, action)
        self.callers.note()
        with self._lock:
            if self._failure is not None:
                note_seen()
                raise type(self._failure)(f"{action}: {self._failure}")
            if self._ended:
                raise ShutDownError(f"{action}: the job was shut down")
            # Under the lock: nobody looks for calls that are agreed on before this one can be found.
            requests = [part.request for part in parts]
            if len(requests) == 1:
                call.handles = [self.runtime.core.submit(requests[0])]
            else:
                call.handles = self.runtime.core.submit_group(requests)
            if beside is not None:
                beside()
            self._pending[call] = None
            if not self._threads:
                self._start_threads()
        return DelegatedHandle(self.runtime, self, call, result)

    def pass_on(self) -> None:
        """Gives the library all calls that the ranks have agreed on, in the order of their numbers."""
        with self._order:
            self._passes_on = True
            calls = self._take_agreed()
            try:
                for call in calls:
                    self._carry_out(call)
            finally:  # Ctrl-C, in the middle of one.
                for call in calls:
                    if not call.is_passed_on:
                        call.failure, call.is_passed_on = AbortedError(f"{call.action} was interrupted"), True
                self._passes_on = False

    def settle(self) -> None:
        """Returns when all calls of this rank have been passed on, or refused."""
        for call in self._waiting():
            for handle in call.handles:
                with contextlib.suppress(Error):  # Its own handle shows it.
                    handle.wait()
        self.pass_on()

    def shutdown(self) -> None:
        """Before the runtime's. What the library has been given completes."""
        with self._lock:
            self._ended = True
        with self._order:
            self._end("shutdown")

    def abort(self) -> None:
        """The job has failed, and kernels may wait for ranks that have ended."""
        with self._lock:
            self._ended = True
        self._end("abort")

    def join_threads(self) -> None:
        """After the runtime's shutdown(). A thread that the interpreter ends inside a library would end the process."""
        until = time.monotonic() + interruption.LAST_WAIT_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))
        if self._ending.acquire(timeout=max(0.0, until - time.monotonic())):
            self._ending.release()

    def look(self) -> bool:
        """At the device, for gyre._devices.watch."""
        try:
            self._watch.look()
        except TimeoutError as failure:
            # The program may be in a function of C for long, where it cannot be interrupted.
            logging.getLogger("gyre").error("rank %d: %s", self.runtime.rank, failure)
            with contextlib.suppress(Error):
                self.runtime.core.abort(str(failure))
            self._fail(failure)
            return False
        return not self._is_closed

    def is_idle(self) -> bool:
        """Whether its threads do nothing before ranks agree on something."""
        return not self._passes_on and not self._has_agreed.is_set()

    def _start_threads(self) -> None:
        for run in (self._follow_agreements, self._pass_on_agreed):
            thread = threading.Thread(target=run, name="gyre delegate", daemon=True)
            self._threads.append(thread)
            thread.start()
        look_after(self)

    def _follow_agreements(self) -> None:
        """Never enters the library, which may wait on the host for a rank that has died: somebody must notice."""
        count = 0
        try:
            while (count := self.runtime.core.wait_for_agreements(count)) >= 0:
                self._has_agreed.set()
        except Error as failure:  # Every handle shows it.
            self._fail(failure)
        self._is_over = True
        self._has_agreed.set()

    def _pass_on_agreed(self) -> None:
        """For programs that wait for something else: whoever waits for a call passes it on by itself."""
        while not self._is_over:
            self._has_agreed.wait()
            self._has_agreed.clear()
            self.pass_on()

    def _fail(self, failure: Error) -> None:
        with self._lock:
            self._failure = self._failure or failure
        # Before the library is ended: what waits for it goes on then. All other calls show it by themselves.
        if self._watch.is_under_way():
            is_elsewhere = self.callers.interrupt(error_from_code(failure.code, str(failure)), lambda: None)
            if isinstance(failure, TimeoutError):
                end_if_it_hangs(is_elsewhere)
        self.abort()

    def _end(self, how: str) -> None:
        progress.finish()
        if not self._ending.acquire(timeout=interruption.LAST_WAIT_SECONDS):
            return  # The device keeps another thread from it.
        if how == "shutdown":
            self._ending.release()  # One that hangs may be aborted.
        try:
            with contextlib.suppress(RuntimeError):  # It has failed already, and has said so.
                getattr(self._group, how, lambda: None)()
        finally:
            if how == "abort":
                self._ending.release()
        self._group = None
        self._is_closed = True
        self._watch.forget()

    def _take_agreed(self) -> list[Call]:
        # Handles are done in the order of their numbers. A second look finds all that stand before the last one that
        # the first has found: the first may have seen one before it was done, and the next one after.
        found = [call for call in self._waiting() if call.is_agreed_on()]
        last = max((call.number for call in found if call.failure is None), default=0)
        found = [call for call in self._waiting() if call.is_agreed_on()]
        ready = [call for call in found if call.failure is None and call.number <= last]
        with self._lock:
            for call in found:
                if call.failure is not None:
                    del self._pending[call]
            for call in ready:
                del self._pending[call]
        return sorted(ready, key=lambda call: call.number)

    def _waiting(self) -> list[Call]:
        with self._lock:
            return list(self._pending)

    def _carry_out(self, call: Call) -> None:
        assert call.agreements is not None
        given = Given(call, time.monotonic())
        self._watch.enter(given)
        try:
            if self._failure is not None:
                raise self._failure
            stream = self._stream(call.device)
            staging.wait_on_device(stream, call.written)
            with stream:
                if any(one.some_have_joined for one in call.agreements) or not self._can_use(call):
                    call.staged = call.stage(OneTimeName(f"{_KEPT_AS}.{call.number}"))
                else:
                    with contextlib.nullcontext() if self._has_carried_out else library_threads.started_here():
                        for part, agreement in zip(call.parts, call.agreements, strict=True):
                            call.results.append(self._result(part, agreement))
                    self._has_carried_out = True
                    for part in call.parts:
                        staging.note_use(part.tensor, stream)
                    call.end = stream.record_event()
                    if progress.is_followed(self.runtime):
                        self._follow(call, call.end)
                call.parts = ()  # From here on the device keeps what it needs.
        except BaseException as failure:
            self._refuse(call, failure)
            if not isinstance(failure, Exception):
                raise
        finally:
            given.note_end(call.end)
            self._watch.note_work(given, given, may_ask=True)
            call.is_passed_on = True

    def _refuse(self, call: Call, failure: BaseException) -> None:
        if self._failure is not None:
            call.failure = self._failure  # The library was ended therefore, and what it says is a consequence.
            return
        call.failure = failure if isinstance(failure, Exception) else AbortedError(f"{call.action} was interrupted")
        # The other ranks have passed it on, and would wait for this one.
        self.runtime.core.abort(f"rank {self.runtime.rank}: {call.action} failed: {failure}")

    def _follow(self, call: Call, end: torch.Event) -> None:
        """For the timeline, and `gyre explain`."""
        names = [part.request.name for part in call.parts]
        progress.follow(
            self.runtime,
            f"gyre.torch on {call.device.type}",
            names[0].partition(".")[0].upper(),
            progress.names_of(names),
            sum(part.tensor.nbytes for part in call.parts),
            end.query,
        )

    def _result(self, part: Part, agreement: Agreement) -> torch.Tensor:
        """A library serves one device of a rank. Tensors of others are copied there and back, because the other ranks
        do not see the difference."""
        assert self._device is not None
        tensor = part.tensor
        if tensor.device == self._device:
            return part.carry_out(self._group, agreement, tensor)
        with self._stream(self._device), torch.no_grad():
            # A copy between devices waits for the current streams of both, and they for it.
            result = part.carry_out(self._group, agreement, tensor.detach().to(self._device))
            if not part.in_place:
                return result.to(tensor.device)
            tensor.detach().copy_(result)
            increment_version(tensor)
            return tensor

    def _stream(self, device: torch.device) -> torch.Stream:
        if device not in self._streams:
            self._streams[device] = torch.Stream(device)
        return self._streams[device]

    def _can_use(self, call: Call) -> bool:
        """Whether there is such a library for these ranks, which they find out together at their first call."""
        if self._device is None:
            made = meeting.group_of_ranks(self.runtime, call.device, self._exchanged)
            with self._lock:
                if self._failure is not None:
                    raise self._failure
                self._group = made
            self._device = call.device
        return self._group is not None

    def _exchanged(self, own: torch.Tensor) -> torch.Tensor:
        """Every rank's."""
        name = OneTimeName(f"{_KEPT_AS}.meeting")
        submission = gathering_submission(self.runtime, Kind.ALLGATHER, own.unsqueeze(0), name)
        rows: torch.Tensor = submit_one(self.runtime, submission).wait()[0]
        return rows


for loop in (Delegate._follow_agreements, Delegate._pass_on_agreed):
    register_loop(loop.__code__, lambda frame: bool(frame.f_locals["self"].is_idle()))


def delegate_of(runtime: Runtime, tensors: Sequence[torch.Tensor]) -> Delegate | None:
    """What exchanges these tensors, all of one device; None if they go through host memory. Equal on ranks whose
    tensors and devices are alike."""
    device = tensors[0].device
    if runtime.size == 1 or device.type == "cpu" or delegates.default_of(device.type) is None:
        return None
    if any(tensor.device != device or tensor.dtype not in _TYPES for tensor in tensors):
        return None
    kept: Delegate | None = runtime.kept_by_interfaces.get(_KEPT_AS)
    if kept is None:
        kept = runtime.kept_by_interfaces.setdefault(_KEPT_AS, Delegate(runtime, device.type))
    return kept


def run_work(work: Any) -> None:
    """The current stream, on which the library was called, waits for what it does on its own."""
    staging.wait_for_work(work)
