"""The optimizer that averages gradients over all ranks before it steps."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import torch

from gyre._job.compression import Compression, Compressor, wire_format_of
from gyre._job.process_sets import ProcessSet, global_process_set, runtime_of
from gyre._operations import ReduceOperation, Reduction
from gyre._program_position import stacklevel_of_program
from gyre._runtime import Runtime, current
from gyre._torch_private import check_scaler_has_asked
from gyre.errors import CallOrderError, InvalidArgumentError
from gyre.torch._exchange import GradientExchange
from gyre.torch._exchange_hooks import retire_exchanges
from gyre.torch._exchange_options import GRADIENTS_NOT_WANTED, ExchangeOptions
from gyre.torch._first_step import check_word
from gyre.torch._wrapping import wrap
from gyre.torch.adasum_optimizer import AdasumMixin
from gyre.torch.asynchronous import allreduce_async

AnyOptimizer = TypeVar("AnyOptimizer", bound=torch.optim.Optimizer)
Closure = Callable[[], Any]

_STEP_AFTER_SYNCHRONIZE = (
    "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(): the gradients are "
    "already exchanged, and are not exchanged again. Use `with optimizer.skip_synchronize(): optimizer.step()`."
)


class DistributedMixin(torch.optim.Optimizer):
    """The mixin that DistributedOptimizer adds to an optimizer's class. A copy of it has no exchange: it steps
    alone."""

    _exchange: GradientExchange | None = None
    _parameter_names: dict[torch.Tensor, str]
    _compression: type[Compressor]
    _skip = False
    _synchronized_alone = False  # synchronize() has been called since the last step; of an optimizer without exchange.

    # The arguments of DistributedOptimizer, for scripts that read them.
    op: ReduceOperation
    process_set: ProcessSet
    backward_passes_per_step: int
    gradient_predivide_factor: float
    sparse_as_dense: bool

    def synchronize(self) -> None:
        """Waits until all gradients are exchanged: afterwards every parameter's `grad` is the reduced one.

        step() calls it. Call it yourself to modify the reduced gradients (clipping), then step() under
        skip_synchronize(). Collective. Raises gyre.Error if the exchange fails.
        """
        if self._exchange is None:
            self._synchronized_alone = True
            return
        if self._exchange.ended_in_backward and self._exchange.synchronized:
            self._exchange.claim()  # Already done; step() warns if skip_synchronize() is not used.
        else:
            self._exchange.finish()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() inside does not exchange gradients: synchronize() has been called already."""
        self._skip = True
        try:
            yield
        finally:
            self._skip = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From the next step on; see DistributedOptimizer."""
        _check_passes(passes)
        self.backward_passes_per_step = passes
        if self._exchange is not None:
            self._exchange.options.passes_per_step = passes

    def step(self, closure: Closure | None = None) -> Any:
        """synchronize(), unless it has been called since the last backward pass, then the class's own step.

        With a closure (LBFGS), every call of it is followed by an exchange; LBFGS decides by the closure's loss, which
        is therefore averaged over the ranks.
        """
        exchange = self._exchange
        if exchange is not None:
            exchange.check_in_use()
        if exchange is not None and exchange.spoiled is not None:
            raise CallOrderError(
                f"the gradient of '{exchange.spoiled}' was changed between backward() and step(), by another "
                "backward(): call zero_grad() and compute the gradients again."
            )
        if self._skip:
            result = super().step(closure)
        elif exchange is not None and closure is not None:
            result = super().step(self._synchronized(closure))
        else:
            if self._synchronized_by_the_user():
                warnings.warn(_STEP_AFTER_SYNCHRONIZE, stacklevel=stacklevel_of_program())
            elif exchange is not None and not exchange.synchronized:
                check_scaler_has_asked()
                exchange.finish()
            result = super().step(closure)
        self._synchronized_alone = False
        if exchange is not None:
            exchange.synchronized = False
            exchange.claim()
        return result

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """torch.amp.GradScaler.step() reads this before it looks at the gradients to decide whether to step: they
        must be reduced by now. (What it writes into them does not change their version counters.)"""
        if self._exchange is not None:
            self._exchange.examine()
        return bool(self.__dict__.get("_step_supports_amp_scaling", False))

    step.hooked = True  # type: ignore[attr-defined]  # The class's own step runs the step hooks; once is enough.

    def _synchronized_by_the_user(self) -> bool:
        """Since the last backward pass."""
        if self._exchange is None:
            return self._synchronized_alone
        return self._exchange.synchronized and not self._exchange.ended_in_backward

    def _synchronized(self, closure: Closure) -> Closure:
        def closure_and_exchange() -> Any:
            loss = closure()
            self.synchronize()
            if isinstance(self, torch.optim.LBFGS) and self._exchange is not None:
                name = f"{self._exchange.name}.loss"
                return allreduce_async(torch.as_tensor(loss).detach(), name=name, process_set=self.process_set).wait()
            return loss

        return closure_and_exchange

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As in torch. CallOrderError between backward() and step(), while the gradients are being exchanged, or if
        they are reduced but untouched: a script that skips a step on purpose has changed them (clipping, a
        GradScaler) or calls synchronize() before."""
        if self._exchange is not None:
            if self._exchange.under_way or self._exchange.has_untouched_results:
                raise CallOrderError(
                    "optimizer.zero_grad() was called after backward() but before optimizer.step() or "
                    "optimizer.synchronize(): this step's gradients are exchanged with the other ranks. Call it before "
                    f"backward(). {GRADIENTS_NOT_WANTED}"
                )
            self._exchange.forget_passes()
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in torch; on every rank, between two steps."""
        super().add_param_group(param_group)
        self._parameter_names = _names_of_all(self, self._parameter_names)
        if self._exchange is not None:
            self._exchange.set_parameters(_named_in_order(self))


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: AnyOptimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOperation = ReduceOperation.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    error_feedback: bool = False,
    end_in_backward: bool = True,
    divide_by_contributors: bool = False,
    unequal_replicas: str = "warn",
) -> AnyOptimizer:
    """`optimizer`, with gradients averaged over all ranks: exchanged while backward() still runs, done in step().

    The result is an instance of the optimizer's own class and shares its parameter groups and state; use it instead of
    the original, from one thread. Collective: every rank wraps the same parameters in the same order.
    named_parameters: model.named_parameters(), names for messages and the timeline. Must cover all parameters.
    compression: how float32 gradients are sent between hosts (within a host nothing is rounded): Compression.none,
        .fp16 or .bf16 (half the bytes, sums in float32), or your own class, in whose type they are sent and summed.
    backward_passes_per_step: number of backward passes that are accumulated (summed) locally before the exchange.
    op: Average or Sum; with Adasum every rank steps by itself, and the changes are added adaptively.
    gradient_predivide_factor: gradients are divided by it before the sum and multiplied after (op=Average only).
    groups: lists of parameters whose gradients are exchanged together, in a bucket of their own, however large; or the
        number of lists to divide all parameters into, in order. Not for op=Adasum. num_groups: deprecated form.
    sparse_as_dense: exchange sparse gradients as dense ones, instead of only their rows at the end of the exchange.
    process_set: exchange among these ranks only. On a rank outside the set the result steps by itself.
    error_feedback: add the rounding error of fp16 or bf16 to this rank's next gradient; needs memory for all of them.
    end_in_backward: backward() returns when the gradients are reduced, so that clipping needs no synchronize(). Only if
        the first one produced all gradients on every rank; otherwise, or with False on any rank, step() waits.
    divide_by_contributors: while ranks have joined, averages are over the others. Same on all ranks; op=Average only.
    unequal_replicas: if parameters differ in the first step: "warn" (on rank 0), "error" (on all ranks) or "allow".

    The first step is exchanged when it ends, later ones in the order of its gradients while backward() runs. Gradients
    that the program keeps (`old = parameter.grad`, a view, an array) keep their values, as in torch. Those of a device
    go through host memory (docs/guide/gpu.md). Invalid arguments raise InvalidArgumentError; ranks that disagree
    MismatchError. A rank without a gradient for a parameter contributes zeros and receives the others' average. With
    one rank the optimizer works as if it were not wrapped.
    """
    _check_arguments(optimizer, backward_passes_per_step, op, gradient_predivide_factor, unequal_replicas)
    _check_options(op, compression, error_feedback=error_feedback, divide_by_contributors=divide_by_contributors)
    group_of = _numbered_groups(optimizer, num_groups, groups)
    names = _checked_names(optimizer, named_parameters)
    runtime = _runtime_in(process_set)
    with_adasum = op == ReduceOperation.ADASUM and runtime is not None and runtime.size > 1
    wrapped: Any = wrap(optimizer, AdasumMixin if with_adasum else DistributedMixin)
    wrapped._parameter_names = _names_of_all(wrapped, names)
    wrapped.op, wrapped.process_set, wrapped.sparse_as_dense = op, process_set, sparse_as_dense
    wrapped.gradient_predivide_factor, wrapped._compression = gradient_predivide_factor, compression
    wrapped.backward_passes_per_step, wrapped._unequal_replicas = backward_passes_per_step, unequal_replicas
    if runtime is None or runtime.size == 1 or with_adasum:
        return cast("AnyOptimizer", _without_exchange(wrapped, runtime))
    options = ExchangeOptions(
        reduction=_reduction(op, gradient_predivide_factor),
        compression=compression,
        error_feedback=error_feedback,
        passes_per_step=backward_passes_per_step,
        end_in_backward=end_in_backward,
        sparse_as_dense=sparse_as_dense,
        sparse_results=isinstance(optimizer, torch.optim.SparseAdam),
        divide_by_contributors=divide_by_contributors,
        groups=group_of,
        unequal_replicas=unequal_replicas,
    )
    wrapped._exchange = GradientExchange(runtime, _named_in_order(wrapped), options)
    return cast("AnyOptimizer", wrapped)


def _without_exchange(wrapped: Any, runtime: Runtime | None) -> Any:
    """It steps by itself; with Adasum the ranks combine their steps."""
    if isinstance(wrapped, AdasumMixin) and runtime is not None:
        wrapped._name = f"adasum.{runtime.next_number('adasum.optimizer')}"
    retire_exchanges(current(), _ids(wrapped))
    return wrapped


def _runtime_in(process_set: ProcessSet) -> Runtime | None:
    """The set's own runtime; None on a rank outside the set, which exchanges nothing."""
    if isinstance(process_set, ProcessSet) and process_set.included() is False:
        return None
    return runtime_of(process_set, "DistributedOptimizer")


def _ids(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _check_passes(passes: int) -> None:
    if passes < 1:
        raise InvalidArgumentError(f"backward_passes_per_step must be at least 1, not {passes}")


def _check_arguments(
    optimizer: object, passes: int, op: ReduceOperation, predivide: float, unequal_replicas: str
) -> None:
    check_word(unequal_replicas)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, DistributedMixin | AdasumMixin):
        raise InvalidArgumentError("the optimizer is already a DistributedOptimizer")
    if op not in (ReduceOperation.AVERAGE, ReduceOperation.SUM, ReduceOperation.ADASUM):
        raise InvalidArgumentError(f"DistributedOptimizer works with op=Average, Sum or Adasum, not {op!r}")
    if predivide != 1.0 and op != ReduceOperation.AVERAGE:
        raise InvalidArgumentError("gradient_predivide_factor can be used with op=Average only")
    if predivide <= 0.0:
        raise InvalidArgumentError(f"gradient_predivide_factor must be positive, not {predivide}")
    _check_passes(passes)


def _check_options(
    op: ReduceOperation, compression: type[Compressor], *, error_feedback: bool, divide_by_contributors: bool
) -> None:
    if error_feedback and wire_format_of(compression) in (None, "native"):
        raise InvalidArgumentError(
            "error_feedback can be used with compression=Compression.fp16 or Compression.bf16 only"
        )
    if divide_by_contributors and op != ReduceOperation.AVERAGE:
        raise InvalidArgumentError("divide_by_contributors can be used with op=Average only")


def _numbered_groups(
    optimizer: torch.optim.Optimizer, num_groups: int, groups: int | Sequence[Sequence[torch.Tensor]] | None
) -> dict[int, int]:
    """The group of each parameter that has one, by the parameter's identity. Tensors that are not the optimizer's
    are ignored, so one list of the model's groups serves several optimizers."""
    if num_groups:
        warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=3)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if groups is None or isinstance(groups, int):
        count = num_groups if groups is None else groups
        if isinstance(count, bool) or count < 0:
            raise InvalidArgumentError(
                f"groups must be a number of groups or a list of lists of parameters, not {count!r}"
            )
        return {id(parameter): index * count // len(parameters) for index, parameter in enumerate(parameters) if count}
    members = [parameter for group in groups for parameter in group]
    if not all(isinstance(member, torch.Tensor) for member in members):
        raise InvalidArgumentError("groups must contain only lists of parameters")
    if len({id(member) for member in members}) != len(members):
        raise InvalidArgumentError("groups contains a parameter more than once")
    known = _ids(optimizer)
    return {id(each): number for number, group in enumerate(groups) for each in group if id(each) in known}


def _reduction(op: ReduceOperation, predivide: float) -> Reduction:
    return Reduction(op, 1.0 / predivide, predivide)


def _checked_names(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[torch.Tensor, str]:
    """The names as given. If a parameter has several names, the alphabetically last one counts."""
    if named_parameters is None:
        return {}
    named = list(named_parameters)
    if any(not isinstance(item, tuple) or len(item) != 2 for item in named):
        raise InvalidArgumentError(
            "named_parameters must be pairs (name, parameter), as model.named_parameters() gives"
        )
    duplicates = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if duplicates:
        raise InvalidArgumentError(
            f"the names in named_parameters must be unique; these stand there more than once: {', '.join(duplicates)}"
        )
    names = {parameter: name for name, parameter in sorted(named, key=lambda item: item[0])}
    unnamed = len(_ids(optimizer) - {id(parameter) for parameter in names})
    if unnamed:
        raise InvalidArgumentError(f"named_parameters names all but {unnamed} of the optimizer's parameters; name all")
    return names


def _names_of_all(optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str]) -> dict[torch.Tensor, str]:
    """The given names, and one for each parameter that has none."""
    return dict(names) | {
        parameter: f"allreduce.noname.{group_index}.{index}"
        for group_index, group in enumerate(optimizer.param_groups)
        for index, parameter in enumerate(group["params"])
        if parameter not in names
    }


def _named_in_order(optimizer: DistributedMixin) -> list[tuple[str, torch.Tensor]]:
    """All parameters in the order of the groups."""
    names = optimizer._parameter_names
    return [(names[parameter], parameter) for group in optimizer.param_groups for parameter in group["params"]]
