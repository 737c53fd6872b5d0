"""Tensors of other devices in a process group of Gyre's, which exchanges tensors in host memory alone.

`init_process_group("gyre")` gives the tensors of every other device to that device's default backend, and
`"cpu:gyre,cuda:nccl"` to the backend that it names; `"cuda:gyre"` asks for Gyre's own exchange, through host memory.
torch itself makes one C++ ProcessGroup that holds a backend for each device; but a backend that is itself a
ProcessGroup, as every one in Python is, replaces all of them. Ours therefore holds the others (ADR 108).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from gyre import _step_record, _torch_private
from gyre._devices import delegates, library_threads, meeting, progress
from gyre._devices.message_record import MessageRecord, is_message, peer_in
from gyre._devices.record import Record
from gyre._devices.recorded_call import Entry
from gyre._devices.staging import has_streams, is_capturing, is_present
from gyre._devices.watch import look_after
from gyre._torch_private import GroupPlace
from gyre.distributed._failures import of_torch
from gyre.distributed._peer_mapped import called_by_reducer
from gyre.distributed._recorded import is_recorded, signature_of
from gyre.errors import Error, UnsupportedError

Method = TypeVar("Method", bound=Callable[..., Any])

_OWN = "gyre"
STAGED = object()
_MARGIN = timedelta(seconds=30)
_PrefixStore: Any = getattr(dist, "PrefixStore")  # noqa: B009  Not in the stubs.
# `list | tuple` at the call would be made anew each time, which takes a microsecond.
_SEQUENCES = (list, tuple)


class OtherDevices:
    """The devices of one group that belong to other backends. Thread-safe."""

    def __init__(self, owner: Any, place: GroupPlace, named: dict[str, str] | None) -> None:
        """`named`: the backend of each device, as the program has named them; None if torch does not tell it yet."""
        self._owner = owner
        self._place = place
        self._named = named
        self._lock = threading.Lock()
        self._groups: dict[str, Any] = {}
        self._shared: set[str] = set()  # Devices that ranks have in common, and that Gyre serves therefore.
        # Of those, by id(): with all ranks (None), or with one of them.
        self._connected: set[tuple[int, int | None]] = set()
        self._ended = False
        self._making_records = threading.RLock()  # One is made of the other.
        self._made_record: Record | None = None
        self._made_message_record: MessageRecord | None = None

    def make_those_that_wait(self) -> None:
        """Makes the named backends whose constructors may wait for all ranks, which are all here now."""
        for device_type, backend in (self._named or {}).items():
            if backend != _OWN and not delegates.can_be_made_late(backend):
                self._make(device_type, backend)

    def types(self) -> list[str]:
        """The other devices that this group serves."""
        named = [device_type for device_type in self._known() if device_type != "cpu"]
        return named or list(self._groups)

    def are_staged(self, device_type: str) -> bool:
        """Whether Gyre exchanges its tensors itself: if the program says so, or if torch has no backend for them."""
        known = self._known()
        if device_type in known or device_type in self._shared:
            return known.get(device_type, _OWN) == _OWN
        return known == {"cpu": _OWN} and is_present(device_type)

    def group_for(self, device: torch.device) -> Any:
        """The group that serves `device`; None if it is for this one to do, or to refuse."""
        made = self._groups.get(device.type)
        if made is not None or device.type == "cpu":
            return made
        backend = self._backend_of(device.type)
        return None if backend is None else self._make(device.type, backend)

    def call(
        self, group: Any, device: torch.device, method: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """A method of a group that serves another device. All ranks' calls are compared in the background. STAGED where
        the ranks find out together that Gyre is to exchange these tensors itself, now and later."""
        function = _torch_private.method_of(group, method)
        if self._place.size == 1 or not (is_recorded(method) or is_message(method)):
            return function(*arguments, **options)
        record = self._record
        if record.failure is not None:
            raise record.tell()
        record.callers.note()
        if is_message(method):
            return self._pass_message(id(group), method, function, arguments, options)
        number = self._owner.next_collective()
        try:
            signature = signature_of(method, self._place.size, arguments, options)
        except BaseException:
            self._owner.withdraw_collective(number)
            raise
        entry = record.enter(number, method, signature)
        if record.failure is not None:  # Found meanwhile, and perhaps before this call could be seen.
            raise record.tell()
        try:
            if (id(group), None) in self._connected:
                work = self._taken(entry, function, arguments, options)
            elif self._can_use(group, device):
                self._connected.add((id(group), None))
                with library_threads.started_here():
                    work = self._taken(entry, function, arguments, options)
            else:
                return STAGED
        finally:
            entry.is_made = True
        is_captured = has_streams(device.type) and is_capturing(torch.accelerator.current_stream(device), device)
        under_way = work
        if work is None and has_streams(device.type):
            under_way = delegates.OnCurrentStream(device, is_captured=is_captured)
        if under_way is not None:
            record.note_work(entry, under_way, may_ask=not is_captured)
            if progress.is_followed(self._owner.gyre_runtime):
                self._follow(method, entry, under_way, arguments)
        return work

    def _taken(self, entry: Entry, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The library's work. If it refuses the call, perhaps on this rank alone, the other ranks hear of it."""
        try:
            return self._done_by(function, arguments, options)
        except BaseException as failure:
            if self._record.take_back(entry):
                self._owner.withdraw_collective(entry.number)
            elif self._record.failure is None:
                self._owner.abort(
                    f"{self._owner.title}: {entry.method} has failed on rank {self._place.rank}: {failure}"
                )
            raise

    def _done_by(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The library's work. If the group was ended meanwhile, the library's error is a consequence: its cause is
        raised."""
        try:
            return function(*arguments, **options)
        except RuntimeError:
            if self._record.failure is None:
                raise
            raise self._record.tell() from None

    def _follow(self, method: str, entry: Entry, work: Any, arguments: tuple[Any, ...]) -> None:
        """For the timeline, and `gyre explain`."""
        sent = _last_tensors(arguments)
        size_bytes = sum(tensor.nbytes for tensor in sent)
        done = None
        # This frame, call(), and the function that chose the group.
        if method == "allreduce" and called_by_reducer(2):
            done = _step_record.bucket(self._owner.title, size_bytes, in_place=False, on_device=True)
        row = f"{self._owner.title} on {sent[0].device.type if sent else 'a device'}"
        detail = f"collective {entry.number}, {entry.place or 'a thread of torch'}"
        progress.follow(self._owner.gyre_runtime, row, method.upper(), detail, size_bytes, work.is_completed, done)

    def withdraw(self, method: str) -> None:
        """A call is refused before it has a number, on this rank alone perhaps: the others hear of it."""
        if is_recorded(method):
            self._owner.withdraw_collective(self._owner.next_collective())

    def refusal_of_sparse(self, method: str, device: torch.device) -> Error:
        """For this rank."""
        self.withdraw(method)
        return of_torch(
            UnsupportedError(
                f"{self._owner.title}: {method} of a sparse tensor on {device}, which torch's backend "
                f"{self._backend_of(device.type)} exchanges dense ones of; pass tensor.to_dense()"
            )
        )

    def _can_use(self, group: Any, device: torch.device) -> bool:
        """Whether each rank has a device of its own. UnsupportedError if not, and the program has named the backend."""
        runtime, backend = self._owner.gyre_runtime, self._backend_of(device.type)
        if backend in delegates.SHARING_DEVICES:
            return True
        try:
            shared = meeting.ranks_on_one_device(runtime, device, f"{device.type} devices of {self._owner.title}")
        except Error as failure:
            self._record.look()  # What the calls differ in is the cause of whatever has gone wrong here.
            raise (self._record.tell() if self._record.failure is not None else of_torch(failure)) from None
        if shared is None:
            return True
        if device.type in self._known():
            raise of_torch(
                UnsupportedError(
                    f"{self._owner.title}: ranks {shared[0]} and {shared[1]} use the same device, which torch's "
                    f"backend {backend} refuses; choose one for each rank, with "
                    f"torch.accelerator.set_device_index(local_rank), "
                    f'or name "{device.type}:gyre", which goes through host memory'
                )
            )
        meeting.say_shared_once(runtime, device.type, str(backend), shared)
        with self._lock:
            self._shared.add(device.type)
            self._groups.pop(device.type, None)
        with contextlib.suppress(RuntimeError):
            getattr(group, "abort", lambda: None)()
        return False

    def _pass_message(
        self, group: int, method: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        peer = peer_in(arguments, options)
        # The first one connects the two ranks, and may wait for the other.
        is_first = (group, peer) not in self._connected
        if is_first:
            self._message_record.enter(method, arguments[0][0], peer)
        try:
            with library_threads.started_here() if is_first else contextlib.nullcontext():
                work = self._done_by(function, arguments, options)
        except BaseException as failure:
            if is_first and self._record.failure is None:  # The other rank believes that it has been made.
                self._owner.abort(f"{self._owner.title}: {method} has failed on rank {self._place.rank}: {failure}")
            raise
        if not is_first:
            self._message_record.enter(method, arguments[0][0], peer)
        self._connected.add((group, peer))
        return work

    @property
    def _message_record(self) -> MessageRecord:
        with self._making_records:
            if self._made_message_record is None:
                self._made_message_record = self._make_message_record()
            return self._made_message_record

    def _make_message_record(self) -> MessageRecord:
        made = MessageRecord(
            self._place.rank,
            self._owner.title,
            self._place.timeout.total_seconds(),
            self._owner.gyre_messages,
            self._record.fail,
        )
        look_after(made)
        return made

    @property
    def _record(self) -> Record:
        made = self._made_record
        if made is not None:
            return made
        with self._making_records:
            if self._made_record is None:
                self._made_record = Record(
                    self._owner.gyre_runtime,
                    self._owner.title,
                    self._place.timeout.total_seconds(),
                    self._owner.abort,
                    of_torch,
                )
            return self._made_record

    def finish(self) -> None:
        """Before shutdown(): raises what the comparison of the last calls finds. Collective; does nothing where an
        exception is on its way, perhaps from between two calls that the other ranks have made."""
        if self._made_record is None or sys.exc_info()[1] is not None:
            return
        try:
            if self._made_message_record is not None:
                self._made_message_record.finish()
            self._made_record.finish()
        except Error as failure:
            raise of_torch(failure) from None

    def shutdown(self) -> None:
        # Where the program has failed, what a device still does may wait for the other ranks for ever.
        self._end("shutdown" if sys.exc_info()[1] is None else "abort")

    def abort(self) -> None:
        self._end("abort")

    def _end(self, how: str) -> None:
        for record in (self._made_record, self._made_message_record):
            if record is not None:
                record.end()
        progress.finish()
        with self._lock:
            # A group that was aborted on the record's thread is not shut down at the end of the program as well.
            groups = [] if self._ended else list(self._groups.values())
            self._ended = True
        for group in groups:
            with contextlib.suppress(RuntimeError):  # It has failed already, and has said so.
                getattr(group, how, lambda: None)()

    def _known(self) -> dict[str, str]:
        if self._named is None:
            try:
                config = dist.get_backend_config(self._owner)
            except (ValueError, TypeError):
                return {}  # torch is still making the group.
            self._named = dict(pair.split(":") for pair in config.split(","))
        return self._named

    def _backend_of(self, device_type: str) -> str | None:
        """Unless the program has named other backends than Gyre's, torch's default for the device."""
        known = self._known()
        if device_type in known:
            return known[device_type] if known[device_type] != _OWN else None
        if known != {"cpu": _OWN} or device_type in self._shared or not is_present(device_type):
            return None
        return delegates.default_of(device_type)

    def _make(self, device_type: str, backend: str) -> Any:
        with self._lock:
            if device_type not in self._groups and not self._ended:
                store = _PrefixStore(f"gyre {device_type}/", self._place.store)
                # Its own limit ends the process, and says nothing about the cause: Gyre's comes first.
                timeout = self._place.timeout + max(self._place.timeout / 10, _MARGIN)
                place = dataclasses.replace(self._place, store=store, timeout=timeout)
                group = delegates.make(backend, device_type, place)
                if type(group) is dist.ProcessGroup:
                    # What torch's C++ code asks our base for finds it too.
                    held = group._get_backend(torch.device(device_type))
                    _torch_private.hold(self._owner, device_type, backend, held)
                self._groups[device_type] = group
            return self._groups.get(device_type)


def by_device(method: Method) -> Method:
    """A method of a process group, whose first tensor decides which group runs it."""
    name = method.__name__

    @functools.wraps(method)
    def routed(self: Any, *arguments: Any, **options: Any) -> Any:
        tensor = _first_tensor(arguments)
        if tensor is not None and not tensor.is_cpu:
            group = self.other_devices.group_for(tensor.device)
            if group is not None:
                if tensor.is_sparse:
                    raise self.other_devices.refusal_of_sparse(name, tensor.device)
                work = self.other_devices.call(group, tensor.device, name, arguments, options)
                if work is not STAGED:
                    return work
            if self.other_devices.are_staged(tensor.device.type):
                return self.stage(name, tensor.device, arguments, functools.partial(method, self), options)
        return method(self, *arguments, **options)

    return cast("Method", routed)


def _first_tensor(arguments: tuple[Any, ...]) -> torch.Tensor | None:
    """In lists, and in lists of them."""
    for argument in arguments:
        value = argument
        while isinstance(value, _SEQUENCES) and value:
            value = value[0]
        if isinstance(value, torch.Tensor):
            return value
    return None


def _last_tensors(arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    """Those of the last argument that has any: what a call sends."""
    for argument in reversed(arguments):
        tensors = _tensors_in(argument)
        if tensors:
            return tensors
    return []


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for one in value for tensor in _tensors_in(one)] if isinstance(value, _SEQUENCES) else []
