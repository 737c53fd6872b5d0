"""An optimizer's gradients on devices whose own library exchanges them: used by GradientExchange in place of a Plan.

Gradients are packed into buckets on the device, in the order of the first step. A hook packs a bucket as soon as it is
full and submits it; the engine agrees on the order of buckets and all other operations, and nothing waits on the host
for the device. A reduced gradient is a part of its bucket, which is new memory in each step, so that gradients which
the program keeps keep their values.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gyre._devices import staging
from gyre._job.compression import wire_format_of
from gyre._operations import Kind
from gyre._runtime import Runtime
from gyre.core import _core
from gyre.errors import CallOrderError
from gyre.torch import _staged
from gyre.torch._delegate import delegate_of
from gyre.torch._delegated import allreduce
from gyre.torch._exchange_options import ExchangeOptions
from gyre.torch._exchange_slot import NO_GROUP, Slot
from gyre.torch._submissions import OneTimeName, allreduce_submission, gathering_submission, submit_one
from gyre.torch.handle import Handle

# As large as DDP's: a smaller one does not fill the links between devices, a larger one leaves later.
_BUCKET_BYTES = 25 << 20


def can_bucket(runtime: Runtime, slots: Sequence[Slot], options: ExchangeOptions) -> bool:
    """Whether this rank's gradients can be exchanged so. All ranks must agree about it."""
    parameters = [slot.parameter for slot in slots]
    return (
        bool(parameters)
        and wire_format_of(options.compression) == "native"
        and not options.divide_by_contributors
        and not options.sparse_results
        and all(parameter.is_floating_point() for parameter in parameters)
        and delegate_of(runtime, parameters) is not None
    )


class DeviceBuckets:
    """The methods are those of a Plan, for tensors on a device. Used by one thread at a time."""

    def __init__(
        self, runtime: Runtime, name: str, slots: Sequence[Slot], ready_order: Sequence[int], options: ExchangeOptions
    ) -> None:
        """Collective. `ready_order`: the indices of the slots in the order in which this rank had their gradients."""
        self._runtime = runtime
        self._options = options
        self._name = name
        order = _fullest_order(runtime, ready_order, len(slots), f"{name}.order")
        self._buckets = [
            _Bucket(f"{name}.bucket.{number}", members) for number, members in enumerate(_divided(slots, order))
        ]
        self._bucket_of = {slot.index: bucket for bucket in self._buckets for slot in bucket.slots}

    def take(self, index: int, gradient: torch.Tensor | None) -> None:
        """A gradient of this step. It must not be changed before the next finish_step()."""
        if gradient is None:
            return
        bucket = self._bucket_of[index]
        bucket.take(index, gradient)
        if bucket.is_full():
            self._submit(bucket)

    def finish_step(self) -> None:
        """Ends the step: gradients that were not taken are zeros. The current stream waits for the results."""
        for bucket in self._buckets:
            if bucket.under_way is None and not bucket.is_reduced:  # Ctrl-C may have ended an earlier wait.
                self._submit(bucket)
        for bucket in self._buckets:
            bucket.wait()
        for bucket in self._buckets:
            bucket.is_reduced = False

    def result(self, index: int) -> torch.Tensor:
        """The reduced gradient, after finish_step()."""
        return self._bucket_of[index].result(index)

    def free_results(self) -> None:
        """Gradients that have been taken keep their memory; without this the next step would begin with it as well."""
        for bucket in self._buckets:
            bucket.free()

    def _submit(self, bucket: _Bucket) -> None:
        flat = bucket.pack()
        reduction, action = self._options.reduction, f"gradients of '{bucket.slots[0].name}' and others"

        def stage(name: str | None) -> Handle:
            return _staged.reduced_one(
                self._runtime,
                flat,
                action,
                lambda twin: submit_one(
                    self._runtime, allreduce_submission(self._runtime, twin, twin, name, reduction)
                ),
                in_place=True,
            )

        bucket.under_way = allreduce(
            self._runtime, [flat], lambda: [bucket.name], reduction, action, stage, in_place=True, one=True
        )


AnyPlan = _core.Plan | DeviceBuckets


class _Bucket:
    """Gradients that are exchanged together."""

    def __init__(self, name: str, slots: Sequence[Slot]) -> None:
        self.name = name
        self.slots = slots
        self.under_way: Handle | None = None
        self.is_reduced = False  # In this step.
        self._gradients: dict[int, torch.Tensor] = {}
        self._streams: dict[torch.Stream, None] = {}  # Where they were computed.
        self._places: dict[int, tuple[int, torch.Tensor]] = {}
        self._device = slots[0].parameter.device
        elements = 0
        for slot in slots:
            self._places[slot.index] = elements, slot.wire
            elements += slot.wire.numel()
        self._reduced: torch.Tensor | None = None

    def take(self, index: int, gradient: torch.Tensor) -> None:
        if gradient.device != self._device:
            name = next(slot.name for slot in self.slots if slot.index == index)
            raise CallOrderError(
                f"parameter '{name}' is on {gradient.device} now; its DistributedOptimizer exchanges its gradient on "
                f"{self._device}, where it was in the first step: move the model back, or wrap the optimizer anew"
            )
        self._gradients[index] = gradient.to_dense() if gradient.is_sparse else gradient
        self._streams[torch.accelerator.current_stream(gradient.device)] = None

    def is_full(self) -> bool:
        return len(self._gradients) == len(self.slots)

    def pack(self) -> torch.Tensor:
        """All gradients in one tensor, made on the current stream."""
        stream = torch.accelerator.current_stream(self._device)
        for other in self._streams:
            if other != stream:
                staging.wait_on_device(stream, other.record_event())
        # All of them: the first step's are taken in step(), whose stream need not be that of backward().
        for gradient in self._gradients.values():
            staging.note_use(gradient, stream)
        parts = [_in_memory_order(self._gradients.get(slot.index), slot, self._device) for slot in self.slots]
        self._gradients.clear()
        self._streams.clear()
        with torch.no_grad():
            return torch.cat(parts) if len(parts) > 1 else parts[0].clone()

    def wait(self) -> None:
        if self.under_way is not None:
            self._reduced = self.under_way.wait()
            self.under_way, self.is_reduced = None, True

    def result(self, index: int) -> torch.Tensor:
        assert self._reduced is not None
        place, wire = self._places[index]
        # Not a view: views share a version, and a change of one gradient would be one of all.
        own = torch.empty(0, dtype=wire.dtype, device=self._reduced.device)
        return own.set_(self._reduced.untyped_storage(), place, wire.shape, wire.stride())

    def free(self) -> None:
        self._reduced = None


def _in_memory_order(gradient: torch.Tensor | None, slot: Slot, device: torch.device) -> torch.Tensor:
    """Its elements in one dimension, in the order of the parameter's memory."""
    wire = slot.wire
    if gradient is None:
        return torch.zeros(wire.numel(), dtype=wire.dtype, device=device)
    own = gradient.detach().resolve_neg()
    if own.dtype != wire.dtype or own.stride() != wire.stride():
        own = torch.empty_strided(wire.shape, wire.stride(), dtype=wire.dtype, device=own.device).copy_(own)
    return own.as_strided((wire.numel(),), (1,))


def _divided(slots: Sequence[Slot], order: Sequence[int]) -> list[list[Slot]]:
    """The slots of each bucket: neighbours of one type, or a group of the user's."""
    buckets: list[list[Slot]] = []
    of_group: dict[tuple[int, torch.dtype], list[Slot]] = {}
    room = 0
    for slot in (slots[index] for index in order):
        key = (slot.group, slot.wire.dtype)
        if slot.group != NO_GROUP:
            if key not in of_group:
                of_group[key] = []
                buckets.append(of_group[key])
            of_group[key].append(slot)
            continue
        size = slot.wire.numel() * slot.wire.element_size()
        last = buckets[-1][-1] if buckets else None
        if last is None or last.group != NO_GROUP or last.wire.dtype != slot.wire.dtype or size > room:
            buckets.append([])
            room = _BUCKET_BYTES
        buckets[-1].append(slot)
        room -= size
    return buckets


def _fullest_order(runtime: Runtime, ready_order: Sequence[int], count: int, name: str) -> list[int]:
    """That of the first rank which had most gradients; the others follow in their own order."""
    own = [len(ready_order), *dict.fromkeys([*ready_order, *range(count)])]
    row = torch.tensor([own], dtype=torch.int64, device="cpu")
    rows = submit_one(runtime, gathering_submission(runtime, Kind.ALLGATHER, row, OneTimeName(name))).wait()[0].tolist()
    fullest: list[int] = max(rows, key=lambda one: one[0])[1:]
    return fullest
