"""The library of a device (NCCL) in place of Gyre's own exchange, for operations that come in any order.

Such a library pairs the ranks' calls by their order alone. The engine agrees on each operation, by its name, and on
its place among them; then every rank passes it to the library in that order (ADR 120). The order of a process set is
its own, and so is its communicator.

Nothing waits on the host for a device. It is tested on the simulated device of tests/device, with a stand-in for NCCL.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import increment_version

from gyre._devices import delegates, meeting, progress, staging
from gyre._operations import Kind
from gyre._program_position import register_loop
from gyre._runtime import Runtime
from gyre.core import _core
from gyre.errors import AbortedError, Error, ShutDownError
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


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all ranks have agreed on: gyre::engine::Agreement."""

    number: int
    some_have_joined: bool
    rows: list[int]


@dataclass(slots=True)
class Part:
    """One operation: what is agreed on, and what then passes it to the library, with the stream on which it is to run
    as the current one, and returns its result. `in_place`: that is the tensor which it is given."""

    request: _core.Request
    tensor: torch.Tensor
    carry_out: Callable[[Any, Agreement, torch.Tensor], torch.Tensor]
    in_place: bool = False


class Call:
    """Operations that complete together, on this rank, between the program's call and their place on a stream."""

    def __init__(self, parts: Sequence[Part], stage: Callable[[str], Handle], action: str) -> None:
        """`stage`: makes it an operation through host memory, of this name. `action` starts messages."""
        self.parts = parts
        self.action = action
        self.device = parts[0].tensor.device
        self.written = staging.current_stream(self.device, action).record_event()
        self.stage = stage
        self.handles: list[_core.Handle] = []
        self.agreements: list[Agreement] | None = None
        self.results: list[torch.Tensor] = []
        self.end: torch.Event | None = None  # Of the results, on the library's stream.
        self.staged: Handle | None = None
        self.failure: Exception | None = None
        self.is_passed_on = False

    @property
    def number(self) -> int:
        assert self.agreements is not None
        return self.agreements[-1].number

    def is_agreed_on(self) -> bool:
        """Or refused: `failure` is set then."""
        if self.agreements is not None or self.failure is not None:
            return True
        if not all(handle.done() for handle in self.handles):
            return False
        try:
            for handle in self.handles:
                handle.wait()
            self.agreements = [Agreement(*handle.take_agreement()) for handle in self.handles]
        except Exception as failure:
            self.failure = failure
        return True

    def land(self) -> None:
        """The caller's current stream waits for the results."""
        if self.staged is not None:
            self.staged.wait()
        elif self.end is not None:
            stream = torch.accelerator.current_stream(self.device)
            staging.wait_on_device(stream, self.end)
            for result in self.results:
                staging.note_use(result, stream)


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
                raise call.failure
            return call.staged.wait() if call.staged is not None else result(call.results)

        super().__init__(runtime, call.handles, None, finish)

    def done(self) -> bool:
        staged = self._call.staged
        return super().done() and (staged is None or staged.done())

    def wait(self) -> Any:
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
        self._streams: dict[torch.device, torch.Stream] = {}
        self._thread: threading.Thread | None = None
        self._ended = False

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
        with self._lock:
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
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gyre delegate", daemon=True)
                self._thread.start()
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

    def _run(self) -> None:
        """For programs that wait for something else: whoever waits for a call passes it on by itself."""
        count = 0
        try:
            while (count := self.runtime.core.wait_for_agreements(count)) >= 0:
                self.pass_on()
        except Error:  # Every handle shows it. Kernels may wait for a rank that has ended.
            self.abort()

    def is_idle(self) -> bool:
        """Whether its thread does nothing before ranks agree on something."""
        return not self._passes_on

    def _end(self, how: str) -> None:
        progress.finish()
        group, self._group = self._group, None
        with contextlib.suppress(RuntimeError):  # It has failed already, and has said so.
            getattr(group, how, lambda: None)()

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
        try:
            stream = self._stream(call.device)
            staging.wait_on_device(stream, call.written)
            with stream:
                if any(one.some_have_joined for one in call.agreements) or not self._can_use(call):
                    call.staged = call.stage(OneTimeName(f"{_KEPT_AS}.{call.number}"))
                else:
                    for part, agreement in zip(call.parts, call.agreements, strict=True):
                        call.results.append(self._result(part, agreement))
                    for part in call.parts:
                        staging.note_use(part.tensor, stream)
                    call.end = stream.record_event()
                    if progress.is_followed(self.runtime):
                        self._follow(call, call.end)
                call.parts = ()  # From here on the device keeps what it needs.
        except BaseException as failure:
            call.failure = failure if isinstance(failure, Exception) else AbortedError(f"{call.action} was interrupted")
            # The other ranks have passed it on, and would wait for this one.
            self.runtime.core.abort(f"rank {self.runtime.rank}: {call.action} failed: {failure}")
            if not isinstance(failure, Exception):
                raise
        finally:
            call.is_passed_on = True

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
            self._group = meeting.group_of_ranks(self.runtime, call.device, self._exchanged)
            self._device = call.device
        return self._group is not None

    def _exchanged(self, own: torch.Tensor) -> torch.Tensor:
        """Every rank's."""
        name = OneTimeName(f"{_KEPT_AS}.meeting")
        submission = gathering_submission(self.runtime, Kind.ALLGATHER, own.unsqueeze(0), name)
        rows: torch.Tensor = submit_one(self.runtime, submission).wait()[0]
        return rows


register_loop(Delegate._run.__code__, lambda frame: bool(frame.f_locals["self"].is_idle()))


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
