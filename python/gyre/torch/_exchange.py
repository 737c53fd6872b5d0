"""The exchange of an optimizer's gradients while backward still runs.

One engine Plan holds all trainable parameters. A hook on each copies its gradient, the moment it is complete, to its
place in the plan's arena (memory shared with the other ranks of the host) and marks it ready; the engine reduces a
bucket as soon as all its tensors are in. finish() waits for the rest and hands the places themselves out as
`parameter.grad`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gyre._runtime import Runtime
from gyre.core import _core
from gyre.errors import InvalidArgumentError, UnsupportedError
from gyre.torch._requests import Reduction
from gyre.torch._tensors import DATA_TYPE_NUMBERS, check_tensor, tensor_over
from gyre.torch.compression import Compressor, NoneCompressor, _CastCompressor

NamedParameters = Sequence[tuple[str, torch.Tensor]]


@dataclass
class ExchangeOptions:
    """What DistributedOptimizer was asked for. `sparse_results`: gradients are handed out sparse (SparseAdam)."""

    reduction: Reduction
    compression: type[Compressor]
    passes_per_step: int
    sparse_as_dense: bool
    sparse_results: bool


@dataclass
class Slot:
    """One parameter of the plan."""

    name: str
    parameter: torch.Tensor
    index: int
    place: torch.Tensor  # In the arena, in the type that travels.
    context: Any  # What decompress() needs.
    passes: int = 0  # Backward passes whose gradient has come in since the last step.
    ready: bool = False  # Marked in this step.
    sent: torch.Tensor | None = None  # What `grad` was then,
    sent_version: int = 0  # and how often it had been changed.

    def changed_since(self) -> bool:
        """Whether somebody has written into `grad` since it was marked."""
        return self.sent is not None and self.sent._version != self.sent_version


class GradientExchange:
    """Of one optimizer, on this rank. Used by one thread at a time: the one that calls backward() and step()."""

    def __init__(self, runtime: Runtime, parameters: NamedParameters, options: ExchangeOptions) -> None:
        """Collective: all ranks make it with the same parameters and options; MismatchError shows a difference."""
        self.options = options
        self.synchronized = False  # finish() has run since the last gradient came in.
        self._runtime = runtime
        self._parameters = parameters
        self._hooks: dict[int, torch.utils.hooks.RemovableHandle] = {}
        self._ready_count = 0
        self._build_plan()
        weakref.finalize(self, _remove_hooks, self._hooks)

    def set_parameters(self, parameters: NamedParameters) -> None:
        """The plan is made anew in the next finish()."""
        self._parameters = parameters

    @property
    def under_way(self) -> bool:
        """Whether gradients of this step are being exchanged."""
        return self._ready_count > 0

    def forget_passes(self) -> None:
        """The gradients accumulated so far have been thrown away."""
        for slot in self._slots:
            slot.passes = 0

    def finish(self) -> None:
        """Ends the step: afterwards every trainable parameter's `grad` is the reduced one. What had no gradient on this
        rank has contributed zeros. Raises what made the exchange fail, and InvalidArgumentError when somebody has
        written into a gradient while it was being exchanged."""
        self._finish_plan(self._slots)
        if self._trainable_ids() != self._plan_ids:
            known = set(self._plan_ids)
            self._build_plan()
            late = [slot for slot in self._slots if id(slot.parameter) not in known]
            if late:
                self._finish_plan(late)
        self.synchronized = True

    def _trainable(self) -> list[tuple[str, torch.Tensor]]:
        return [(name, parameter) for name, parameter in self._parameters if parameter.requires_grad]

    def _trainable_ids(self) -> list[int]:
        return [id(parameter) for _, parameter in self._parameters if parameter.requires_grad]

    def _build_plan(self) -> None:
        """Backward produces gradients roughly in the reverse order of registration, so that is the plan's order."""
        trainable = self._trainable()[::-1]
        probes = [self._probe(name, parameter) for name, parameter in trainable]
        tensors = [
            (_layout_name(name, parameter, wire), DATA_TYPE_NUMBERS[wire.dtype], list(wire.shape))
            for (name, parameter), (wire, _) in zip(trainable, probes, strict=True)
        ]
        reduction = self.options.reduction
        self._plan = self._runtime.core.make_plan(
            tensors,
            name=f"optimizer.{self._runtime.next_number('optimizer')}",
            operation=reduction.operation,
            prescale=reduction.prescale,
            postscale=reduction.postscale,
        )
        self._slots = [
            Slot(name, parameter, index, _place(self._plan.memory(index), wire), context)
            for index, ((name, parameter), (wire, context)) in enumerate(zip(trainable, probes, strict=True))
        ]
        self._plan_ids = self._trainable_ids()
        self._slot_of = {id(slot.parameter): slot for slot in self._slots}
        self._register_hooks()

    def _probe(self, name: str, parameter: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """A tensor like the one that will travel, and the compressor's context."""
        check_tensor(parameter, f"DistributedOptimizer, parameter '{name}'")
        if self._is_cast():
            # The built-in ones only change the type: nothing need be computed to know the result.
            return self.options.compression.compress(torch.empty_like(parameter, device="meta", requires_grad=False))
        wire, context = self.options.compression.compress(torch.zeros_like(parameter, requires_grad=False))
        check_tensor(wire, f"DistributedOptimizer, parameter '{name}' after compression")
        return wire.contiguous(), context

    def _is_cast(self) -> bool:
        return issubclass(self.options.compression, (NoneCompressor, _CastCompressor))

    def _register_hooks(self) -> None:
        reference = weakref.ref(self)

        def on_gradient(parameter: torch.Tensor) -> None:
            exchange = reference()
            if exchange is not None:
                exchange._gradient_arrived(parameter)

        for slot in self._slots:
            if id(slot.parameter) not in self._hooks:
                handle = slot.parameter.register_post_accumulate_grad_hook(on_gradient)  # type: ignore[no-untyped-call]
                self._hooks[id(slot.parameter)] = handle

    def _gradient_arrived(self, parameter: torch.Tensor) -> None:
        self.synchronized = False
        slot = self._slot_of.get(id(parameter))
        if slot is None:
            return  # Not in the plan yet: finish() takes care of it.
        if slot.ready:
            raise InvalidArgumentError(
                f"the gradient of '{slot.name}' was computed more than backward_passes_per_step="
                f"{self.options.passes_per_step} times before optimizer.step() or optimizer.synchronize(). Raise "
                "backward_passes_per_step to accumulate over several backward passes."
            )
        slot.passes += 1
        if slot.passes >= self.options.passes_per_step:
            self._contribute(slot)

    def _contribute(self, slot: Slot) -> None:
        gradient = slot.parameter.grad
        if gradient is None:
            return  # finish_step() contributes zeros.
        if gradient is not slot.place:
            slot.place.copy_(self._to_wire(slot, gradient.detach()))
        slot.sent, slot.sent_version = gradient, gradient._version
        slot.ready = True
        self._ready_count += 1
        self._plan.mark_ready(slot.index)

    def _to_wire(self, slot: Slot, gradient: torch.Tensor) -> torch.Tensor:
        if gradient.is_sparse:
            if not (self.options.sparse_as_dense or self.options.sparse_results):
                raise UnsupportedError(
                    f"the gradient of '{slot.name}' is sparse; pass sparse_as_dense=True to DistributedOptimizer "
                    "to exchange it as a dense one"
                )
            gradient = gradient.to_dense()
        # copy_() casts; only other compressors have work of their own to do.
        return gradient if self._is_cast() else self.options.compression.compress(gradient)[0]

    def _finish_plan(self, results: Sequence[Slot]) -> None:
        """`results`: the slots whose gradients this step is about."""
        for slot in results:
            if not slot.ready and slot.parameter.requires_grad:
                self._contribute(slot)
        self._plan.finish_step()
        self._ready_count = 0
        changed = [slot.name for slot in self._slots if slot.changed_since()]
        for slot in self._slots:
            slot.ready = False
            slot.passes = 0
            slot.sent = None
        if changed:
            raise InvalidArgumentError(
                f"the gradient of '{changed[0]}' was changed between backward() and step(), while it was being "
                "exchanged; this step's gradients are of no use: call zero_grad() and compute them again. To change "
                "gradients (clipping, unscaling), call optimizer.synchronize() first."
            )
        for slot in results:
            if slot.parameter.requires_grad:
                self._hand_out(slot)

    def _hand_out(self, slot: Slot) -> None:
        parameter = slot.parameter
        if self.options.sparse_results:
            parameter.grad = slot.place.to_sparse(1).to(parameter.dtype)
        elif slot.place.dtype == parameter.dtype and self._is_cast():
            if parameter.grad is not slot.place:
                parameter.grad = slot.place
        else:
            if parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = torch.empty_like(parameter, requires_grad=False)
            values = slot.place if self._is_cast() else self.options.compression.decompress(slot.place, slot.context)
            parameter.grad.detach().copy_(values)


def _remove_hooks(hooks: dict[int, torch.utils.hooks.RemovableHandle]) -> None:
    for hook in hooks.values():
        hook.remove()


def _layout_name(name: str, parameter: torch.Tensor, wire: torch.Tensor) -> str:
    """Elements travel in the order of memory, so ranks must agree on it: an unusual one is part of the name."""
    return name if wire.is_contiguous() else f"{name} (strides {list(parameter.stride())})"


def _place(memory: _core.Memory, wire: torch.Tensor) -> torch.Tensor:
    """The tensor's place in the arena, with the strides of `wire` (which keep those of a dense parameter)."""
    place = tensor_over(memory, wire.dtype, wire.shape)
    return place if wire.is_contiguous() else place.view(-1).as_strided(wire.shape, wire.stride())
