"""The exchange of an optimizer's gradients while backward still runs.

One engine Plan holds all trainable parameters. The first step is exchanged when it ends. The plan is then laid out, for
good, in the order in which the gradients came on the first rank that had most of them. From then on a hook on each
parameter copies its complete gradient to its place in the plan's arena (memory shared with the other ranks of the
host), makes that place the parameter's `grad`, and marks it ready; the engine reduces a bucket as soon as all its
tensors are ready. finish() waits for the rest. On a device, DeviceBuckets take the Plan's place.

If the first backward() produced all gradients on every rank, all later ones are assumed to do the same, and the
exchange ends with backward(), on all ranks alike (ADR 18). Gradients reduced there are the user's, to change, to step
with or, once they have been looked at, to discard.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import torch

from gyre._devices.staging import Outward, say_once, twin_of
from gyre._job.compression import wire_format_of
from gyre._runtime import Runtime
from gyre._tensors.memory import DATA_TYPE_NUMBERS, memory_of, tensor_over
from gyre._torch_private import at_end_of_backward, current_backward, keep_out_of_graphs, version_of
from gyre.core import _core
from gyre.errors import CallOrderError, Error, ShutDownError
from gyre.torch._autograd import inside_another_backward
from gyre.torch._device_buckets import AnyPlan, DeviceBuckets, can_bucket
from gyre.torch._exchange_hooks import hook_of, remove_hooks, retire_exchanges
from gyre.torch._exchange_options import GRADIENTS_NOT_WANTED, ExchangeOptions
from gyre.torch._exchange_slot import NO_GROUP, NOT_IN_PLAN, Slot, hand_out, layout_name
from gyre.torch._first_step import FirstStep, Replica
from gyre.torch._sparse_exchange import SparseExchange
from gyre.torch._staged import check_tensor

NamedParameters = Sequence[tuple[str, torch.Tensor]]

# Counts the contributors: one more tensor of the plan, to which each of them adds one. float64 is never narrowed.
_COUNT_NAME = "gyre.contributors"


class GradientExchange:
    """The exchange of one optimizer, on this rank. Used by one thread at a time: the one that calls backward() and
    step()."""

    def __init__(self, runtime: Runtime, parameters: NamedParameters, options: ExchangeOptions) -> None:
        """Collective: all ranks create it with the same parameters and options; MismatchError shows a difference."""
        self.options = options
        self.synchronized = False  # finish() has run since the last gradient arrived.
        self.ended_in_backward = False  # backward() has reduced gradients that have not been claimed since,
        self._examined = False  # although they have been checked for being fit to step with.
        self._plan_was_interrupted = False  # It is unknown whether the other ranks have a plan now.
        self._retired: Error | None = None  # Why it exchanges nothing any more.
        self.spoiled: str | None = None  # A parameter to whose gradient a later backward() has added.
        self._ends_in_backward: bool | None = None  # The same on all ranks; unknown until the first backward() ends.
        self._first_step = FirstStep(runtime, options.unequal_replicas)
        self._ends_with: int | None = None  # The backward pass whose end will call this exchange.
        self._in_own_type = options.in_own_type
        self.lock = threading.RLock()  # Of hooks: with parameters on several devices, each has a thread for its own.
        self._outward = Outward()
        self._results: dict[int, torch.Tensor] = {}  # Reduced in backward(), outside the arena; by the slot's id.
        self.runtime = runtime
        self._parameters = parameters
        self._hooks: dict[int, torch.utils.hooks.RemovableHandle] = {}
        self._ready_count = 0
        self._arrived: list[Slot] = []  # In the order in which this step completed them.
        self._plan: AnyPlan | None = None  # Made by the first finish(), which knows the order.
        self._slots: list[Slot] = []  # Of the plan,
        self._slot_of: dict[int, Slot] = {}  # and all there ever were, by the parameter's id.
        self._count: torch.Tensor | None = None  # Of the contributors, in the arena.
        # Drawn here and never again: later, optimizers of other threads would draw at other times on other ranks.
        number = runtime.next_number("optimizer")
        self.place = (
            runtime.set_id,
            number,
        )  # Orders the exchanges of the job and its process sets alike on all ranks.
        self.name = f"optimizer.{number}"
        self._layouts = 0
        self._sparse = SparseExchange(runtime, options.reduction, f"{self.name}.sparse")  # Filled with the plan.
        self._choose_slots()
        runtime.core.check_plan(self._describe_tensors(), self._plan_options())
        weakref.finalize(self, remove_hooks, self._hooks)
        runtime.add_exchange(self)
        keep_out_of_graphs()

    def set_parameters(self, parameters: NamedParameters) -> None:
        """The next finish() makes a new plan."""
        self._parameters = parameters

    @property
    def under_way(self) -> bool:
        """Whether gradients of this step are being exchanged."""
        return self._ready_count > 0

    def prepare_join(self) -> None:
        """This rank has no more steps: the engine takes part in those of the others, which requires a plan.
        Collective if there is none yet. CallOrderError in the middle of a step."""
        if self._retired:
            return
        if self.under_way or self.has_untouched_results:
            raise CallOrderError(
                "join() was called between backward() and step(); call it after the last step(), before backward()"
            )
        self._agree_about_backward(complete=True)  # As the others do in their first step; this rank follows them.
        if self._plan is None:
            self._make_plan()
            for slot in self._slots:
                slot.contribution = None  # Made to learn the compressed form; this rank contributes nothing.

    @property
    def has_untouched_results(self) -> bool:
        """Whether backward() has reduced gradients that have not been claimed or changed since. A single-process
        loop discards gradients only after it has changed them (clipping, unscaling); a script that discards these
        has probably called backward() on some ranks only, or too early."""
        if not self.ended_in_backward or not self.synchronized or self._examined:
            return False
        return not any(map(self._result_changed, self._slots))

    def examine(self) -> None:
        """The caller will decide by the reduced gradients whether to step."""
        if self.under_way:
            self._finish_unasked()
        self._examined = True

    def claim(self) -> None:
        """The reduced gradients are used now, or discarded on purpose."""
        self.ended_in_backward = False
        self._examined = False
        self._results.clear()

    def forget_passes(self) -> None:
        """The gradients accumulated so far have been discarded."""
        self.claim()
        self.spoiled = None
        for slot in self._slots:
            slot.passes = 0

    def check_in_use(self) -> None:
        """CallOrderError if a newer exchange has taken the parameters over, ShutDownError after shutdown()."""
        if self._retired:
            raise self._retired.with_traceback(None)

    def retire_if_it_has(self, parameters: AbstractSet[int]) -> None:
        """Any of these, by their ids."""
        if not self._hooks.keys().isdisjoint(parameters):
            name = next(name for name, parameter in self._parameters if id(parameter) in parameters)
            self._retire(
                CallOrderError(
                    f"parameter '{name}' of this DistributedOptimizer was wrapped again by a newer one, which "
                    "exchanges its gradient now: use that one, for all parameters where the two share only some"
                )
            )

    def end_with_runtime(self) -> None:
        """The runtime has been shut down: gradients stay as backward() makes them, or belong to another exchange."""
        self._retire(
            ShutDownError(
                "the job of this DistributedOptimizer was shut down, or its process set removed; make it anew"
            )
        )

    def _retire(self, why: Error) -> None:
        self._retired = why
        self._ends_with = None
        remove_hooks(self._hooks)
        self._hooks.clear()
        self._outward.forget()

    def finish(self) -> None:
        """Ends the step: afterwards every trainable parameter's `grad` is the reduced one. Parameters without a
        gradient on this rank have contributed zeros. Raises the exchange's error, and CallOrderError if a gradient
        was written to while it was being exchanged."""
        self.check_in_use()
        self._ends_with = None
        self.claim()
        self._agree_about_backward(complete=False)
        changed = [slot.name for slot in self._slots if slot.changed_since()]
        if self._plan is None:
            if self._trainable_ids() != self._slot_ids:
                self._choose_slots()
            self._hand_out(self._reduce(self._make_plan(), self._slots))
        else:
            self._hand_out(self._reduce(self._plan, self._slots))
            if self._trainable_ids() != self._slot_ids:
                self._hand_out(self._reduce_late_ones())
        self._sparse.run()
        self._arrived.clear()
        if changed:
            raise CallOrderError(
                f"the gradient of '{changed[0]}' was changed between backward() and step(), while it was being "
                "exchanged; this step's gradients are of no use: call zero_grad() and compute them again. To change "
                "gradients (clipping, unscaling), call optimizer.synchronize() first."
            )
        self.synchronized = True

    def _trainable(self) -> list[tuple[str, torch.Tensor]]:
        return [(name, parameter) for name, parameter in self._parameters if parameter.requires_grad]

    def _trainable_ids(self) -> list[int]:
        return [id(parameter) for _, parameter in self._trainable()]

    def _choose_slots(self) -> None:
        """One slot for each parameter that is trainable now. Backward produces gradients roughly in the reverse
        order of registration: that order is used for parameters whose real one is not known."""
        slots = []
        for name, parameter in reversed(self._trainable()):
            if parameter not in self._sparse:
                slot = self._slot_of.setdefault(id(parameter), Slot(name, parameter))
                check_tensor(parameter, f"DistributedOptimizer, parameter '{name}'")
                if self._in_own_type or not slot.wire_is_known:
                    slot.wire = torch.empty_like(parameter, device="meta", requires_grad=False)
                slot.group = self.options.groups.get(id(parameter), NO_GROUP)
                slots.append(slot)
        self._take_slots(slots)
        self._slot_ids = self._trainable_ids()
        self._layouts += 1
        self._register_hooks()

    def _take_slots(self, slots: list[Slot]) -> None:
        for slot in self._slots:
            slot.index = NOT_IN_PLAN
        self._slots = slots
        for index, slot in enumerate(slots):
            slot.index = index

    def _describe_tensors(self) -> list[tuple[str, int, list[int], int]]:
        tensors = [
            (layout_name(slot), DATA_TYPE_NUMBERS[slot.wire.dtype], list(slot.wire.shape), slot.group)
            for slot in self._slots
        ]
        if self.options.divide_by_contributors:
            tensors.append((_COUNT_NAME, DATA_TYPE_NUMBERS[torch.float64], [1], NO_GROUP))
        return tensors

    def _plan_options(self) -> _core.PlanOptions:
        reduction = self.options.reduction
        return _core.PlanOptions(
            name=self.name if self._layouts == 1 else f"{self.name}.{self._layouts}",
            operation=reduction.operation,
            prescale=reduction.prescale,
            postscale=reduction.postscale,
            wire=wire_format_of(self.options.compression) or "native",
            error_feedback=self.options.error_feedback,
        )

    def _make_plan(self) -> AnyPlan:
        """Makes the plan in the order in which this step completed the gradients. Submits gradients that are already
        complete."""
        if self._plan_was_interrupted:
            raise CallOrderError(
                "Ctrl-C ended the wait for the other ranks while the first step laid out its exchange, which "
                "cannot be taken up again: call shutdown() and init() on all ranks, and wrap the optimizer anew"
            )
        try:
            self._part_with_sparse_ones()
            self._compress_first_ones()
            arrived = [slot for slot in dict.fromkeys(self._arrived) if slot.index != NOT_IN_PLAN]
            options, order = self._plan_options(), [slot.index for slot in arrived]
            if self._first_step.in_buckets and can_bucket(self.runtime, self._slots, self.options):
                self._plan = DeviceBuckets(
                    self.runtime, f"{self.name}.{self._layouts}", self._slots, order, self.options
                )
            else:
                self._plan = self.runtime.core.make_plan(self._describe_tensors(), options, order)
        except KeyboardInterrupt:
            self._plan_was_interrupted = True
            raise
        for slot in self._slots:
            slot.enter(self._plan, self.options)
        if self.options.divide_by_contributors and not isinstance(self._plan, DeviceBuckets):
            self._count = tensor_over(self._plan.memory(len(self._slots)), torch.float64, [1])
        for slot in arrived:
            if slot.ready:
                self._contribute(self._plan, slot)
        return self._plan

    def _part_with_sparse_ones(self) -> None:
        """Parameters with a sparse gradient on any rank in their first step are exchanged by `_sparse`, not by the
        plan."""
        if self.options.sparse_as_dense:
            return
        self._sparse.choose_among([(slot.name, slot.parameter) for slot in self._slots])
        self._take_slots([slot for slot in self._slots if slot.parameter not in self._sparse])

    def _compress_first_ones(self) -> None:
        """The compressed form of a gradient is known only when the user's compressor has seen one; for gradients
        that this rank does not have, zeros are compressed."""
        if self._in_own_type:
            return
        for slot in self._slots:
            if slot.ready or not slot.wire_is_known:
                slot.compress(self.options.compression)

    def _reduce_late_ones(self) -> Sequence[Slot]:
        """The set of trainable parameters has changed: a new plan is made, and parameters that were not in the old
        one are exchanged through it."""
        known = set(self._slot_ids)
        self._choose_slots()
        plan = self._make_plan()
        late = [slot for slot in self._slots if id(slot.parameter) not in known]
        return self._reduce(plan, late) if late else []

    def _register_hooks(self) -> None:
        retire_exchanges(self.runtime, {id(slot.parameter) for slot in self._slots}, but=self)
        for slot in self._slots:
            if id(slot.parameter) not in self._hooks:
                hook = hook_of(weakref.ref(self), slot)
                handle = slot.parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
                self._hooks[id(slot.parameter)] = handle

    def _agree_about_backward(self, *, complete: bool) -> None:
        """Collective, the first time: whether the first backward() has produced all gradients on all ranks."""
        if self._ends_in_backward is not None:
            return
        # In the order of registration, which users know.
        replicas = [Replica(slot.name, slot.parameter, slot.passes > 0) for slot in reversed(self._slots)]
        self._ends_in_backward = self._first_step.agree(
            f"{self.name}.first_step",
            replicas,
            complete=complete and self.options.end_in_backward,
            in_buckets=can_bucket(self.runtime, self._slots, self.options),
        )

    def _backward_ended(self, number: int) -> None:
        """Called by autograd after each backward() that completed a gradient: once for every exchange."""
        if inside_another_backward():
            self._ends_with = None  # Of a checkpointed part; the outer one will produce more gradients.
            return
        # Not those of another thread's backward(). Their first gradients may have come in another order elsewhere.
        others = self.runtime.exchanges()  # Keras's among them, in a program with both.
        waiting = [one for one in others if isinstance(one, GradientExchange) and one._ends_with == number]
        for exchange in sorted(waiting, key=lambda one: one.place):
            exchange._end_with_backward()

    def _end_with_backward(self) -> None:
        self._ends_with = None
        self._agree_about_backward(complete=self._ready_count == len(self._slots))
        if self._ends_in_backward and not self.synchronized:
            self._finish_unasked()

    def _finish_unasked(self) -> None:
        self.finish()
        for slot in self._slots:
            if not slot.lives_in_arena and slot.parameter.grad is not None:
                self._results[id(slot)] = slot.parameter.grad
            result = self._result(slot)
            slot.result_version = 0 if result is None else version_of(result)
        self.ended_in_backward = True

    def _result(self, slot: Slot) -> torch.Tensor | None:
        return slot.place if slot.lives_in_arena else self._results.get(id(slot))

    def _result_changed(self, slot: Slot) -> bool:
        """Whether the reduced gradient has been written to or replaced since backward() returned."""
        result, gradient = self._result(slot), slot.parameter.grad
        return result is not None and (
            version_of(result) != slot.result_version or (gradient is not None and gradient is not result)
        )

    def _queue_end_of_backward(self) -> None:
        wanted = self.options.end_in_backward if self._ends_in_backward is None else self._ends_in_backward
        if not wanted:
            return
        number = self._ends_with = current_backward()
        reference = weakref.ref(self)

        def on_end() -> None:
            exchange = reference()
            if exchange is not None and exchange._ends_with == number:
                exchange._backward_ended(number)

        at_end_of_backward(on_end)

    def gradient_arrived(self, slot: Slot) -> None:
        if self.ended_in_backward:
            self._refuse_unless_of_a_new_step(slot)
        self.synchronized = False
        if slot.index == NOT_IN_PLAN:
            self._arrived.append(slot)  # finish() takes care of it.
            return
        if slot.ready:
            raise self._computed_too_often(slot.name)
        slot.passes += 1
        if slot.passes >= self.options.passes_per_step:
            self._complete(slot)
            if self._ends_with is None:
                self._queue_end_of_backward()

    def _refuse_unless_of_a_new_step(self, slot: Slot) -> None:
        in_plan = slot.index != NOT_IN_PLAN
        refused = not self._is_of_a_new_step(slot) if in_plan else not self._examined and slot.parameter in self._sparse
        if refused:
            self.spoiled = slot.name
            raise self._computed_too_often(slot.name)

    def _is_of_a_new_step(self, slot: Slot) -> bool:
        """If the last step's gradients were reduced in backward() and not claimed: whether the caller has removed
        this one (the model's zero_grad()) after it was looked at, so that nothing was added to it now."""
        result = self._result(slot)
        if result is None or result is slot.parameter.grad:
            return False
        return self._examined or version_of(result) != slot.result_version

    def _computed_too_often(self, name: str | None) -> CallOrderError:
        return CallOrderError(
            f"the gradient of '{name}' was computed more than backward_passes_per_step="
            f"{self.options.passes_per_step} times before optimizer.step() or optimizer.synchronize(). Raise "
            "backward_passes_per_step to accumulate over several backward passes; pass end_in_backward=False if a step "
            f"has several losses of different parameters. {GRADIENTS_NOT_WANTED}"
        )

    def _complete(self, slot: Slot) -> None:
        if slot.parameter.grad is None and self._in_own_type:
            return  # finish_step() contributes zeros.
        self._arrived.append(slot)
        self._ready_count += 1
        plan = self._plan
        if plan is None:
            slot.complete()
        elif not slot.contribute_plainly(plan):
            slot.complete()
            self._contribute(plan, slot)

    def _contribute(self, plan: AnyPlan, slot: Slot) -> None:
        gradient = slot.parameter.grad
        if isinstance(plan, DeviceBuckets):
            return plan.take(slot.index, gradient)
        if not self._in_own_type:
            contribution = slot.take_compressed(self.options.compression)
            slot.complete()  # compress() may write into the gradient.
        elif gradient is None or slot.is_in_place(gradient):
            return plan.mark_ready(slot.index)
        else:
            contribution = gradient.to_dense() if gradient.is_sparse else gradient.detach()
        place = slot.free_place(plan)
        if not contribution.is_cpu:
            return self._send(plan, slot, contribution)
        same_bytes = contribution.dtype == place.dtype and contribution.stride() == place.stride()
        if not same_bytes or contribution.is_neg():
            contribution = place.copy_(contribution)
        # Autograd's own tensor is no longer needed, unless it is differentiated through.
        if slot.lives_in_arena and gradient is not None and not gradient.requires_grad:
            slot.parameter.grad = place
            slot.complete()
        if contribution is place:
            return plan.mark_ready(slot.index)
        return plan.contribute(slot.index, contribution.data_ptr(), contribution.nbytes)

    def _send(self, plan: _core.Plan, slot: Slot, contribution: torch.Tensor) -> None:
        """A gradient of a device, which the device may still have to compute."""
        slot.lives_in_arena = False  # A module can be moved at any time.
        index, twin = slot.index, twin_of(slot.wire, torch.preserve_format)
        if self.runtime.rank == 0:
            say_once(contribution.device.type)
        self._outward.send(
            contribution,
            twin,
            lambda arrived: plan.contribute(index, arrived.data_ptr(), arrived.nbytes),
            f"gradient of '{slot.name}'",
        )

    def _reduce(self, plan: AnyPlan, results: Sequence[Slot]) -> Sequence[Slot]:
        """Ends the plan's step, whose gradients are those of `results`, and returns them."""
        for slot in results:
            if not slot.ready and slot.parameter.requires_grad:
                self._complete(slot)
        for slot in self._slots:
            if not slot.ready and not isinstance(plan, DeviceBuckets):
                slot.free_place(plan)  # Zeros will be there.
        self._outward.deliver()
        self._finish_step(plan)
        self._ready_count = 0
        for slot in self._slots:
            slot.reset()
        return results

    def _finish_step(self, plan: AnyPlan) -> None:
        count = self._count
        if count is None or isinstance(plan, DeviceBuckets):
            return plan.finish_step()
        index = len(self._slots)
        if not plan.is_ready(index):  # This happens if Ctrl-C has ended an earlier wait.
            count.fill_(1.0)
            plan.mark_ready(index)
        plan.finish_step()
        contributors = round(count.item() * self.runtime.size)
        if contributors < self.runtime.size:
            factor = self.runtime.size / contributors
            for place in [slot.place for slot in self._slots if slot.place is not None]:
                _core.multiply(memory_of(place), DATA_TYPE_NUMBERS[place.dtype], factor)
        return None

    def _hand_out(self, slots: Sequence[Slot]) -> None:
        hand_out(slots, self.options)
        if isinstance(self._plan, DeviceBuckets):
            self._plan.free_results()
