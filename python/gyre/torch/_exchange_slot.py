"""An optimizer's exchange state for one parameter."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from gyre._devices.staging import Landing, Pair, twin_of
from gyre._job.compression import Compressor
from gyre._tensors.memory import tensor_over
from gyre._torch_private import reference_counts, storage_identity, version_of
from gyre.core import _core
from gyre.errors import InvalidArgumentError
from gyre.torch._exchange_options import ExchangeOptions
from gyre.torch._staged import check_tensor

NO_GROUP = -1
NOT_IN_PLAN = -1

tensor_references, storage_references = reference_counts()


class Buckets(Protocol):
    """Buckets of gradients on a device (gyre.torch._device_buckets)."""

    def result(self, index: int) -> torch.Tensor:
        """The reduced gradient of this step."""


class Slot:
    """One parameter of the plan."""

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.index = NOT_IN_PLAN  # In the plan.
        self.group = NO_GROUP  # Parameters of one group are exchanged in a bucket of their own.
        self.wire = parameter  # Has the shape, type and layout of what is sent.
        self.wire_is_known = False  # As a compressor of the user's makes it.
        self.contribution: torch.Tensor | None = None  # The compressed gradient of this step,
        self.context: Any = None  # and the context to decompress the sum.
        self.place: torch.Tensor | None = None  # In the arena, once there is a plan,
        self._memory: _core.Memory | None = None  # which it is a view of.
        self._storage: torch.UntypedStorage | None = None  # Its storage,
        self._storage_address = 0
        self._address = 0  # Of the place's first byte.
        self._size_bytes = 0
        self._is_contiguous = True
        self.buckets: Buckets | None = None  # On its device, if these are exchanged there.
        self.lives_in_arena = False  # Whether `grad` becomes `place`, and does not only copy its values.
        self._own_holders = 0  # and how many references there are to both if nothing else refers to them.
        self.passes = 0  # Backward passes whose gradient has arrived since the last step.
        self.ready = False  # Complete in this step; submitted, if there is a plan.
        self.sent: torch.Tensor | None = None  # What `grad` was then,
        self.sent_address = 0  # where its values were,
        self.sent_version = 0  # and how often it had been changed.
        self.result_version = 0  # How often the reduced gradient had been changed when backward() returned.

    def compress(self, compression: type[Compressor]) -> None:
        """Makes the contribution from the gradient, or from zeros if there is none. InvalidArgumentError if its type
        or shape is not that of the first step, by which the places were laid out."""
        action = f"gradient of '{self.name}', after compression"
        gradient = self.parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(self.parameter, requires_grad=False)
        wire, self.context = compression.compress(gradient.to_dense() if gradient.is_sparse else gradient.detach())
        wire = check_tensor(wire, action).contiguous()
        if self.wire_is_known and (wire.dtype != self.wire.dtype or wire.shape != self.wire.shape):
            raise InvalidArgumentError(
                f"{action}: {describe_tensor(wire)}, but {describe_tensor(self.wire)} in the first step; "
                "compress() must always return the same type and shape for a gradient"
            )
        if not self.wire_is_known:
            self.wire = torch.empty_like(wire, device="meta")
            self.wire_is_known = True
        self.contribution = wire

    def take_compressed(self, compression: type[Compressor]) -> torch.Tensor:
        """The contribution, made now if it is not there yet."""
        if self.contribution is None:
            self.compress(compression)
        contribution, self.contribution = self.contribution, None
        assert contribution is not None
        return contribution

    def decompress(self, compression: type[Compressor], reduced: torch.Tensor, gradient: torch.Tensor) -> None:
        """Decompresses `reduced` into `gradient`, with the context of this step."""
        context, self.context = self.context, None
        result = compression.decompress(reduced, context)
        if not isinstance(result, torch.Tensor) or result.shape != gradient.shape:
            raise InvalidArgumentError(
                f"gradient of '{self.name}': decompress() must return {describe_tensor(gradient)}, not "
                f"{describe_tensor(result) if isinstance(result, torch.Tensor) else type(result).__name__}"
            )
        gradient.copy_(result)

    def enter(self, plan: _core.Plan | Buckets, options: ExchangeOptions) -> None:
        """The plan has it at `index`."""
        self.buckets = None if isinstance(plan, _core.Plan) else plan
        if isinstance(plan, _core.Plan):
            self.open_place(plan)
        self.lives_in_arena = (
            isinstance(plan, _core.Plan)
            and options.in_own_type
            and not options.sparse_results
            and self.parameter.is_cpu
            and self.wire.dtype == self.parameter.dtype
        )

    def hand_out(self, options: ExchangeOptions, landing: list[Pair]) -> None:
        """Makes the reduced gradient, which is in `place`, the parameter's `grad`. If that is on a device, the caller
        makes the copies that are added to `landing`."""
        parameter, place = self.parameter, self.place
        if parameter.requires_grad and self.buckets is not None:
            parameter.grad = self.buckets.result(self.index)
            return
        if not parameter.requires_grad or place is None:
            return
        if options.sparse_results:
            parameter.grad = place.to_sparse(1).to(parameter.device, parameter.dtype)
            return
        if self.lives_in_arena:
            if parameter.grad is not place:
                parameter.grad = place
            return
        if parameter.grad is None or parameter.grad.is_sparse:
            parameter.grad = torch.empty_like(parameter, requires_grad=False)
        if parameter.is_cpu:
            self.decompress(options.compression, place, parameter.grad.detach())
            return
        twin = twin_of(place, torch.preserve_format).copy_(place)
        if options.in_own_type:
            landing.append((twin, parameter.grad))
            return
        reduced = torch.empty_like(place, device=parameter.device)
        Landing([(twin, reduced)]).land()
        self.decompress(options.compression, reduced, parameter.grad.detach())

    def open_place(self, plan: _core.Plan) -> torch.Tensor:
        """Makes `place` a tensor over the plan's memory, with the strides of `wire` (which keep those of a dense
        parameter)."""
        self._memory = plan.memory(self.index)
        place = tensor_over(self._memory, self.wire.dtype, self.wire.shape)
        if not self.wire.is_contiguous():
            place = place.view(-1).as_strided(self.wire.shape, self.wire.stride())
        self.place = place
        self._storage = place.untyped_storage()
        self._storage_address = storage_identity(self._storage)
        self._address = place.data_ptr()
        self._size_bytes = place.nbytes
        self._is_contiguous = place.is_contiguous()
        del place
        self._own_holders = self._count_holders()
        return self.place

    def free_place(self, plan: _core.Plan) -> torch.Tensor:
        """`place`, to be overwritten. If the program has kept the last step's gradient, or anything that shares its
        memory, that keeps its values: `place` is then a new tensor."""
        if (
            self.place is not None
            and self.place.data_ptr() == self._address
            and self._count_holders() == self._own_holders
        ):
            return self.place
        if self._memory is not None:
            self._memory.keep_values()
        return self.open_place(plan)

    def contribute_plainly(self, plan: _core.Plan | Buckets) -> bool:
        """The fast path for most gradients, in as few calls as possible: those that are already in the arena, or
        that only need to be copied there without conversion. False for any other, for which nothing has been done."""
        parameter = self.parameter
        gradient = parameter.grad
        if gradient is None or not self.lives_in_arena or not isinstance(plan, _core.Plan):
            return False
        if gradient is self.place:
            if gradient.data_ptr() != self._address:
                return False
            self._note_sent(gradient)
            plan.mark_ready(self.index)
            return True
        if (
            not self._is_contiguous
            or gradient.is_sparse
            or gradient.requires_grad
            or gradient.dtype != parameter.dtype
            or not gradient.is_contiguous()
            or gradient.is_neg()
            or not gradient.is_cpu
        ):
            return False
        place = self.free_place(plan)
        parameter.grad = place  # Autograd's own tensor is no longer needed.
        self._note_sent(place)
        plan.contribute(self.index, gradient.data_ptr(), self._size_bytes)
        return True

    def _note_sent(self, place: torch.Tensor) -> None:
        self.ready = True
        self.sent = place
        self.sent_address = self._address
        self.sent_version = version_of(place)

    def is_in_place(self, gradient: torch.Tensor) -> bool:
        """Whether it is `place`, and no other memory was assigned to its `data`."""
        return gradient is self.place and gradient.data_ptr() == self._address

    def _count_holders(self) -> int:
        """References from Python and from C++ to the tensor and to its storage: everything that shares its memory
        holds one of them (a view the storage, a DLPack capsule the tensor, a NumPy array either)."""
        place, storage = self.place, self._storage
        return (
            sys.getrefcount(place)
            + sys.getrefcount(storage)
            + (tensor_references(place) if place is not None else 0)
            + storage_references(self._storage_address)
        )

    def changed_since(self) -> bool:
        """Whether `grad` has been written to or replaced since it was complete."""
        if self.sent is None:
            return False
        return (
            self.parameter.grad is not self.sent
            or version_of(self.sent) != self.sent_version
            or (self.sent_address != 0 and self.sent.data_ptr() != self.sent_address)
        )

    def complete(self) -> None:
        """`grad` is what this rank contributes."""
        self.ready = True
        sent = self.sent = self.parameter.grad
        if sent is not None:
            self.sent_version = version_of(sent)
            self.sent_address = 0 if sent.is_sparse else sent.data_ptr()

    def reset(self) -> None:
        self.ready = False
        self.passes = 0
        self.sent = None


def layout_name(slot: Slot) -> str:
    """Elements are sent in memory order, so ranks must agree on it: an unusual order is part of the name."""
    return slot.name if slot.wire.is_contiguous() else f"{slot.name} (strides {list(slot.parameter.stride())})"


def describe_tensor(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def hand_out(slots: Sequence[Slot], options: ExchangeOptions) -> None:
    """Makes their reduced gradients their parameters' `grad`."""
    landing: list[Pair] = []
    for slot in slots:
        slot.hand_out(options, landing)
    Landing(landing).land()
