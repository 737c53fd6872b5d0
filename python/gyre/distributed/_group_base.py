"""The base of every process group of the backend gyre: its beginning and end, and the operations from which the
others are composed."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from gyre import _step_record
from gyre._devices import staged_work, staging
from gyre._operations import Kind, Reduction
from gyre._runtime import Runtime
from gyre._tensors.requests import NOT_PEER_MAPPED, make_request
from gyre._torch_private import GroupPlace, backend_options, backends_being_made, keep_out_of_graphs
from gyre.core import _core
from gyre.distributed import _batches, _lifetime, _requests
from gyre.distributed._barrier import serve_torch_monitored_barrier
from gyre.distributed._devices import OtherDevices
from gyre.distributed._failures import of_torch, of_torch_rendezvous
from gyre.distributed._forms import limit_of
from gyre.distributed._peer_mapped import PeerMappedBuffers, called_by_reducer
from gyre.distributed._rendezvous import join_group
from gyre.distributed._words import SealedWords
from gyre.distributed._work import Completions, MessageCompletions, Work
from gyre.errors import Error, InvalidArgumentError

# As the root of a barrier: Signature::withdrawn() in gyre/engine/request.h.
_WITHDRAWN = -1

# An operation in flight, the memory it needs, and what to do when it is done.
Submitted = tuple[_core.Handle, list[torch.Tensor], Callable[[], None]]

# torch's stubs of it differ from version to version, and its overloads are not meant for Python subclasses.
_ProcessGroup: Any = dist.ProcessGroup


class _Call:
    """A collective until it is submitted: `with` gives (its description in messages, its name). An error within
    affects this rank only, so it is announced to the others, which wait for the collective."""

    __slots__ = ("_group", "_members", "_number", "_operation")

    def __init__(self, group: GroupBase, operation: str, number: int, members: int) -> None:
        self._group = group
        self._operation = operation
        self._number = number
        self._members = members

    @property
    def name(self) -> str:
        return f"collective {self._number} of {self._group._title}"

    def __enter__(self) -> tuple[str, str]:
        return f"{self._group._title}: {self._operation} (its collective {self._number})", self.name

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None:
            names = [f"{self.name}.{member}" for member in range(self._members)]
            self._group._withdraw(names or [self.name])
        if isinstance(error, Error) and (known := of_torch(error)) is not error:
            raise known from None


class GroupBase(_ProcessGroup):  # type: ignore[misc]
    """See ProcessGroup. Collective to make, among its ranks."""

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, group_id: str, global_ranks: Sequence[int] = ()
    ) -> None:
        """`global_ranks`: those of a group that is not the world."""
        super().__init__(rank, size)
        self._own_rank = rank
        self._own_size = size
        self._timeout = timeout
        self._store = store
        self._names = [group_id, "undefined"]
        self._title = self.title = f"process group '{group_id}'"
        self._lock = threading.Lock()
        self._sequence = 0
        self._barriers = 0
        self._coalesced: list[dist.Work] | None = None
        place = GroupPlace(store, rank, size, timeout, group_id, tuple(global_ranks))
        self.other_devices = OtherDevices(self, place, backends_being_made())
        self._owner = os.getpid()
        try:
            joined = join_group(
                store, rank, size, timeout, self._title, timeline=not global_ranks, global_ranks=global_ranks
            )
        except Error as failure:
            raise of_torch_rendezvous(failure) from None
        self._runtime = joined.runtime
        self.gyre_secret = joined.secret  # The ranks of a part of the world agree by it.
        self._words = SealedWords(store, "monitored barriers", joined.secret.derive("gyre torch monitored barriers"))
        if not global_ranks:
            _step_record.start_from_environment(rank)
        self.gyre_messages = self._messages = _core.PointToPoint(self._runtime.core)
        self._peer_mapped = PeerMappedBuffers(self._runtime.place["local_size"])
        self._completions = Completions(f"gyre {group_id}")
        self._message_completions = MessageCompletions(f"gyre {group_id} message")
        serve_torch_monitored_barrier(GroupBase)
        _batches.serve_torch_batches(GroupBase)
        keep_out_of_graphs()
        _lifetime.register(self)
        try:
            self.other_devices.make_those_that_wait()
        except Error:
            self.shutdown()
            raise

    # What torch asks about the group.

    def rank(self) -> int:
        return self._own_rank

    def size(self) -> int:
        return self._own_size

    def name(self) -> str:
        return "gyre"

    @property
    def gyre_runtime(self) -> Runtime:
        """This process as one of the group's ranks; gyre.data writes its waits into its timeline."""
        return self._runtime

    def getBackendName(self) -> str:  # noqa: N802  torch's name.
        return "gyre"

    def _get_backend_name(self) -> str:
        return "gyre"

    # C++ calls these names; torch implements them in backends, of which this group has none.

    def getGroupName(self) -> str:  # noqa: N802
        return self._names[0]

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._names[0] = name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._names[1]

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self._names[1] = description

    # torch 2.14 asks for the backend of a device, and asks that for capabilities beyond a group's methods: none.

    supports_coalescing = False
    supports_splitting = False

    def _get_backend(self, device: torch.device) -> Any:
        elsewhere = self.other_devices.group_for(device)
        return self if elsewhere is None else elsewhere._get_backend(device)

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(device) for device in ("cpu", *self.other_devices.types())]

    @property
    def timeout(self) -> timedelta:
        """How long an operation can wait for a rank before the group fails."""
        return self._timeout

    @property
    def options(self) -> Any:
        """torch's options of a backend; `_timeout` is the one that scripts read."""
        return backend_options("gyre", self._timeout)

    @property
    def store(self) -> Any:
        """torch's store, under this group's prefix."""
        return self._store

    def get_group_store(self) -> Any:
        return self._store

    def statistics_source(self) -> _core.Runtime:
        """The engine's runtime, for its statistics."""
        return self._runtime.core

    def _set_sequence_number_for_group(self) -> None:
        """The numbers start at 1 on every rank anyway."""

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def shutdown(self) -> None:
        """Leaves the group in good order; operations in flight fail. Raises what other_devices.finish() has raised."""
        _lifetime.forget(self)
        if self._owner != os.getpid():
            return
        try:
            self.other_devices.finish()
        finally:
            self.other_devices.shutdown()
            self._messages.shutdown()
            self._runtime.shutdown()
            self._completions.stop()
            self._message_completions.stop()

    def abort(self, reason: str = "") -> None:
        """Fails every operation of every rank of the group, now and later."""
        self._runtime.core.abort(reason or f"rank {self._own_rank} called abort() on {self._title}")
        self.other_devices.abort()  # Last, because the end of a device's library may take its time.

    # The operations from which the others are composed.

    def _begin(self, operation: str, members: int = 0) -> _Call:
        """`members`: for a collective that is several operations for the engine, named NAME.0, NAME.1, …"""
        keep_out_of_graphs()
        with self._lock:
            self._sequence += 1
            return _Call(self, operation, self._sequence, members)

    def next_collective(self) -> int:
        """The number of one that another backend carries out."""
        with self._lock:
            self._sequence += 1
            return self._sequence

    def withdraw_collective(self, number: int) -> None:
        """It has failed on this rank."""
        self._withdraw([_Call(self, "", number, 0).name])

    def _withdraw(self, names: Sequence[str]) -> None:
        """Announces an operation that matches no other of these names."""
        for name in names:
            with contextlib.suppress(Error):  # It is in flight, or the group has ended: the others know already.
                self._runtime.core.submit(
                    make_request(Kind.BARRIER, name, torch.empty(0, dtype=torch.uint8), [0], root=_WITHDRAWN)
                )

    def _check_root(self, root: int, action: str) -> None:
        if not 0 <= root < self._own_size:
            raise InvalidArgumentError(f"{action}: root {root} is not a rank of this group of {self._own_size}")

    @staticmethod
    def _bring(tensor: torch.Tensor, place: torch.Tensor) -> None:
        if place.data_ptr() != tensor.data_ptr():
            place.copy_(tensor.detach())

    def _work(
        self,
        handles: Sequence[_core.Handle | _core.MessageHandle],
        memory: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        action: str,
        opts: Any,
        finish: Callable[[], None] | None = None,
        completions: Completions | None = None,
    ) -> dist.Work:
        work = Work(
            self._runtime,
            completions or self._completions,
            handles,
            memory=[*memory, *outputs],
            outputs=outputs,
            finish=finish,
            timeout=limit_of(opts),
            description=action,
        )
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def stage(
        self, name: str, device: torch.device, arguments: Sequence[Any], on_host: Callable[..., Any], options: Any
    ) -> dist.Work:
        """One of the methods, called with tensors on a device that has no backend of its own here."""
        if self._own_rank == 0:
            staging.say_once(device.type)
        earlier = len(self._coalesced) if self._coalesced is not None else 0
        work = staged_work.exchange(name, device, arguments, on_host, options, self.other_devices.withdraw)
        if self._coalesced is not None:
            self._coalesced[earlier:] = [work]  # In place of the exchange in host memory.
        return work

    def _run(
        self,
        request: _core.Request,
        memory: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        action: str,
        opts: Any,
        finish: Callable[[], None] | None = None,
    ) -> dist.Work:
        return self._work([self._submit(request, opts)], memory, outputs, action, opts, finish)

    def _submit(self, request: _core.Request, opts: Any) -> _core.Handle:
        """If torch says that the caller will wait at once, ranks that arrive within microseconds of each other run it
        on their own threads."""
        core = self._runtime.core
        waits = not getattr(opts, "asyncOp", True) and self._coalesced is None
        return core.run_or_submit(request) if waits else core.submit(request)

    def _allreduce(self, tensor: torch.Tensor, reduction: Reduction, action: str, name: str, opts: Any) -> dist.Work:
        # This frame, allreduce() of the group, the function that chose the group for the device, and its caller.
        from_reducer = called_by_reducer(2)
        peer_mapped = self._peer_mapped.share(tensor) if from_reducer else NOT_PEER_MAPPED
        done = _step_record.bucket(self._title, tensor.nbytes, peer_mapped[0] != 0) if from_reducer else None
        place = _requests.landing(tensor)
        self._bring(tensor, place)
        request = make_request(
            Kind.ALLREDUCE,
            name,
            tensor,
            tensor.shape,
            source=place,
            target=place,
            reduction=reduction,
            peer_mapped=peer_mapped,
        )

        def finish() -> None:
            if done is not None:
                done()
            _requests.copy_back(place, tensor)

        return self._run(request, [place], [tensor], action, opts, finish)

    def _bitwise_allreduce(
        self, tensor: torch.Tensor, function: Any, action: str, name: str, opts: Any, root: int | None = None
    ) -> dist.Work:
        """For rare and small operations (flags): every rank gets all contributions and combines them itself; if
        `root` is given, only the root keeps the result."""
        parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self._own_size)]
        handle, memory, unpack = self._gathering(parts, tensor, action, name, opts)

        def finish() -> None:
            unpack()
            if root is None or root == self._own_rank:
                _requests.copy_back(functools.reduce(function, parts), tensor)

        return self._work([handle], memory, [tensor], action, opts, finish)

    def _exchange_and_combine(
        self, output: torch.Tensor, inputs: list[torch.Tensor], combine: Any, action: str, name: str, opts: Any
    ) -> dist.Work:
        """A reduce-scatter that the engine does not have: every rank gets all contributions to its share, and
        combines them."""
        parts = [torch.empty_like(output, memory_format=torch.contiguous_format) for _ in range(self._own_size)]
        splits = [tensor.numel() for tensor in inputs]
        if len(inputs) != self._own_size:  # All in one tensor.
            splits = [output.numel()] * self._own_size
        handle, memory, unpack = self._exchanging(parts, inputs, splits, [output.numel()] * self._own_size, name, opts)

        def finish() -> None:
            unpack()
            _requests.copy_back(combine(parts), output)

        return self._work([handle], memory, [output], action, opts, finish)

    def _gathering(
        self, outputs: list[torch.Tensor], tensor: torch.Tensor, action: str, name: str, opts: Any
    ) -> Submitted:
        known = _requests.same_type(outputs, tensor, action)
        source = _requests.packed([_requests.movable(tensor, action)])
        sizes = [output.numel() for output in known]
        if len(known) > 1 and len(set(sizes)) > 1 and sizes[self._own_rank] == source.numel():
            # The ranks' tensors differ in size: each is sent to every rank, which knows what to expect from each rank.
            send = [source.numel()] * self._own_size
            return self._exchanging(known, [source] * self._own_size, send, sizes, name, opts)
        if sum(sizes) != source.numel() * self._own_size or len(set(sizes)) > 1:
            raise InvalidArgumentError(
                f"{action}: the output has {sum(sizes)} elements, but {self._own_size} ranks bring {source.numel()} "
                "each; where their sizes differ, a list of tensors of these sizes is needed"
            )
        place = self._place_for(known)
        source = _requests.apart(source, place, unless_at=self._own_rank * source.nbytes)
        # One row per rank, so that the ranks must agree about the number of elements.
        request = make_request(Kind.ALLGATHER, name, source, [1, source.numel()], source=source, target=place)
        handle = self._submit(request, opts)

        return handle, [source, place, *known], self._unpacking(handle, place, known)

    def _allgather(
        self, outputs: list[torch.Tensor], tensor: torch.Tensor, action: str, name: str, opts: Any
    ) -> dist.Work:
        handle, memory, finish = self._gathering(outputs, tensor, action, name, opts)
        return self._work([handle], memory, outputs, action, opts, finish)

    def _reduce_scatter(
        self, result: torch.Tensor, parts: list[torch.Tensor], action: str, name: str, opts: Any
    ) -> dist.Work:
        for tensor in (result, *parts):
            if isinstance(tensor, torch.Tensor) and tensor.dtype != result.dtype:
                raise InvalidArgumentError(
                    f"{action}: tensors of different types were given, {result.dtype} and {tensor.dtype}"
                )
        output = _requests.reducible(result, opts.reduceOp, action)
        inputs = [_requests.reducible(tensor, opts.reduceOp, action) for tensor in parts]
        elements = sum(tensor.numel() for tensor in inputs)
        uneven = len({tensor.numel() for tensor in inputs}) > 1
        for_this_rank = inputs[self._own_rank].numel() if uneven else elements // self._own_size
        if for_this_rank != output.numel() or (not uneven and elements % self._own_size != 0):
            raise InvalidArgumentError(
                f"{action}: the input has {elements} elements; {self._own_size} ranks that get {output.numel()} "
                f"each need {output.numel() * self._own_size}"
            )
        function = _requests.bitwise_of(opts.reduceOp, output, action)
        if function is not None:
            combine = functools.partial(functools.reduce, function)
            return self._exchange_and_combine(output, inputs, combine, action, name, opts)
        reduction = _requests.reduction_of(opts.reduceOp, action)
        if uneven:
            combination = _requests.combination(reduction, self._runtime.place["host_of_rank"], self._own_rank)
            return self._exchange_and_combine(output, inputs, combination, action, name, opts)
        place = _requests.landing(output)
        source = _requests.apart(_requests.packed(inputs), place)
        request = make_request(
            Kind.REDUCESCATTER,
            name,
            output,
            [self._own_size, output.numel()],
            source=source,
            target=place,
            reduction=reduction,
        )
        handle = self._submit(request, opts)

        def finish() -> None:
            _requests.take_into(handle, place)
            _requests.copy_back(place, output)

        return self._work([handle], [source, place], [result], action, opts, finish)

    def _elements(self, tensor: torch.Tensor, splits: Sequence[int], whose: str) -> list[int]:
        """The number of elements sent to, or received from, each rank."""
        rows = tensor.shape[0] if tensor.dim() > 0 else 0
        if not splits:
            if rows % self._own_size != 0:
                raise InvalidArgumentError(
                    f"{whose} first dimension, {rows}, is not a multiple of the size, {self._own_size}; give splits"
                )
            splits = [rows // self._own_size] * self._own_size
        if len(splits) != self._own_size or sum(splits) != rows or min(splits) < 0:
            raise InvalidArgumentError(
                f"{whose} splits {list(splits)} do not divide a first dimension of {rows} among {self._own_size} ranks"
            )
        row = _requests.movable(tensor, whose).numel() // rows if rows else 0
        return [split * row for split in splits]

    @staticmethod
    def _place_for(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Where the engine writes the elements that are then divided among `outputs`: directly into the outputs if
        there is one, or if they follow each other in memory."""
        if len(outputs) == 1:
            return _requests.landing(outputs[0])
        joined = _requests.joined(outputs)
        if joined is not None:
            return joined
        elements = sum(output.numel() for output in outputs)
        return torch.empty(elements, dtype=outputs[0].dtype if outputs else torch.uint8)

    def _exchanging(
        self,
        outputs: list[torch.Tensor],
        inputs: list[torch.Tensor],
        send: list[int],
        receive: list[int],
        name: str,
        opts: Any,
    ) -> Submitted:
        """An all-to-all of elements; used for everything that moves data without reducing it, except broadcasts."""
        source = _requests.packed(inputs)
        place = self._place_for(outputs)
        source = _requests.apart(source, place)
        request = make_request(
            Kind.ALLTOALL,
            name,
            source,
            [source.numel()],
            source=source,
            target=place,
            splits=send,
            expected_splits=receive,
        )
        handle = self._submit(request, opts)

        return handle, [source, place, *outputs], self._unpacking(handle, place, outputs)

    @staticmethod
    def _unpacking(handle: _core.Handle, place: torch.Tensor, outputs: Sequence[torch.Tensor]) -> Callable[[], None]:
        """What divides the engine's result among `outputs`. Mostly nothing is left to do."""
        there = not outputs or place.data_ptr() == outputs[0].data_ptr()

        def finish() -> None:
            _requests.take_into(handle, place)
            if not there:
                _requests.unpack(place.view(-1), outputs)

        return finish
