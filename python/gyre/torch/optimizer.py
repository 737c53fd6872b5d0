"""The optimizer that averages gradients over all ranks before it steps."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import torch

from gyre._torch_private import check_scaler_has_asked
from gyre.errors import CallOrderError, InvalidArgumentError
from gyre.torch._exchange import GradientExchange, retire_exchanges
from gyre.torch._exchange_options import ExchangeOptions
from gyre.torch._requests import ReduceOperation, Reduction
from gyre.torch._wrapping import wrap
from gyre.torch.adasum_optimizer import AdasumMixin, adasum_optimizer
from gyre.torch.asynchronous import allreduce_async
from gyre.torch.compression import Compression, Compressor, wire_format_of
from gyre.torch.process_sets import ProcessSet, global_process_set, runtime_of

AnyOptimizer = TypeVar("AnyOptimizer", bound=torch.optim.Optimizer)
Closure = Callable[[], Any]


class DistributedMixin(torch.optim.Optimizer):
    """What DistributedOptimizer adds to an optimizer's class. A copy of it has no exchange: it steps alone."""

    _exchange: GradientExchange | None = None
    _names: dict[int, str]
    _process_set = global_process_set
    _skip = False
    _warned = False

    def synchronize(self) -> None:
        """Waits until all gradients are exchanged: afterwards every parameter's `grad` is the reduced one.

        step() calls it. Call it yourself to work on the reduced gradients (clipping), then step() under
        skip_synchronize(). Collective. Raises gyre.Error when the exchange fails.
        """
        if self._exchange is None:
            return
        if self._exchange.ended_in_backward and self._exchange.synchronized:
            self._exchange.claim()  # Done already; step() will say so if it is not told.
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
        if self._exchange is not None:
            self._exchange.options.passes_per_step = passes

    def step(self, closure: Closure | None = None) -> Any:
        """synchronize(), unless it has been called since the last backward pass, and the step of the class itself.

        With a closure (LBFGS), every call of it is followed by an exchange; LBFGS decides by the closure's loss,
        so there it is averaged over the ranks.
        """
        exchange = self._exchange
        if exchange is not None:
            exchange.check_in_use()
        if exchange is not None and exchange.spoiled is not None:
            raise CallOrderError(
                f"the gradient of '{exchange.spoiled}' was changed between backward() and step(), by another "
                "backward(): call zero_grad() and compute the gradients again."
            )
        if exchange is None or self._skip:
            result = super().step(closure)
        elif closure is not None:
            result = super().step(self._synchronized(closure))
        else:
            self._synchronize_once(exchange)
            result = super().step()
        if exchange is not None:
            exchange.synchronized = False
            exchange.claim()
        return result

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """What torch.amp.GradScaler.step() asks an optimizer before it looks at the gradients, on which it decides
        whether to step: they must be reduced by now. (What it writes into them leaves no trace in their versions.)"""
        if self._exchange is not None:
            self._exchange.examine()
        return bool(self.__dict__.get("_step_supports_amp_scaling", False))

    step.hooked = True  # type: ignore[attr-defined]  # The class's own step runs the step hooks; once is enough.

    def _synchronize_once(self, exchange: GradientExchange) -> None:
        if not exchange.synchronized:
            check_scaler_has_asked()
            exchange.finish()
        elif not exchange.ended_in_backward and not self._warned:
            self._warned = True
            warnings.warn(
                "optimizer.step() after optimizer.synchronize(): the gradients are exchanged already and are not "
                "exchanged again. Say so with `with optimizer.skip_synchronize(): optimizer.step()`.",
                stacklevel=4,
            )

    def _synchronized(self, closure: Closure) -> Closure:
        def closure_and_exchange() -> Any:
            loss = closure()
            self.synchronize()
            if isinstance(self, torch.optim.LBFGS):
                return allreduce_async(torch.as_tensor(loss).detach(), process_set=self._process_set).wait()
            return loss

        return closure_and_exchange

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As ever. CallOrderError between backward() and step(), while the gradients are being exchanged, or where they
        are reduced and nobody has looked: who leaves out a step on purpose has changed them (clipping, a GradScaler) or
        calls synchronize() before."""
        if self._exchange is not None:
            if self._exchange.under_way or self._exchange.has_untouched_results:
                raise CallOrderError(
                    "optimizer.zero_grad() was called after backward() but before optimizer.step() or "
                    "optimizer.synchronize(): this step's gradients are exchanged with the other ranks. Call it before "
                    "backward(); to leave out a step on every rank, call optimizer.synchronize() first."
                )
            self._exchange.forget_passes()
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As ever; on every rank, between two steps."""
        super().add_param_group(param_group)
        if self._exchange is not None:
            self._exchange.set_parameters(_name_parameters(self, self._names))


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
) -> AnyOptimizer:
    """`optimizer`, with gradients averaged over all ranks: exchanged while backward() still runs, done in step().

    The result is an instance of the optimizer's own class and shares its parameter groups and state; use it instead of
    the original, from one thread. Collective: every rank wraps the same parameters in the same order.
    named_parameters: model.named_parameters(): names for messages and the timeline. Must cover all parameters.
    compression: how float32 gradients travel between hosts: Compression.none, .fp16 or .bf16 (half the bytes, sums in
        float32; between ranks of one host nothing travels, and nothing is rounded), or a class of yours, in whose type
        gradients travel and are summed wherever the ranks are.
    backward_passes_per_step: so many backward passes are accumulated (summed) here before the exchange.
    op: Average or Sum; with Adasum every rank steps by itself, and the changes are added adaptively.
    gradient_predivide_factor: gradients are divided by it before the sum and multiplied after (op=Average only).
    groups: lists of parameters whose gradients travel together, in a bucket of their own however large; or into how
        many lists to divide them all, in order. Not for op=Adasum. num_groups is its deprecated form.
    sparse_as_dense: exchange sparse gradients as dense ones, not (when the exchange ends) by their rows alone.
    process_set: exchange among these ranks only; the others do not call it.
    error_feedback: what fp16 or bf16 takes from a gradient is added to this rank's next; costs the memory of them all.
    end_in_backward: backward() returns when the gradients are reduced, so that clipping needs no synchronize(). Only
        where the first one brought all gradients on every rank; otherwise, or with False on any rank, step() waits.
    divide_by_contributors: while ranks have joined, averages are over the others. Equal on all ranks; op=Average only.

    The first step is exchanged when it ends; the order in which its gradients came on rank 0 is the one in which later
    steps are exchanged while backward() runs. Whatever somebody has kept of a gradient (`old = parameter.grad`, a view,
    an array) keeps its values after zero_grad(set_to_none=True), as ever.

    Parameters that are not on the CPU raise UnsupportedError; wrong arguments InvalidArgumentError; ranks that disagree
    MismatchError. A rank where a parameter got no gradient contributes zeros and receives the others' average. With one
    rank the optimizer works as if it were not wrapped.
    """
    runtime = runtime_of(process_set, "DistributedOptimizer")
    _check_arguments(optimizer, backward_passes_per_step, op, gradient_predivide_factor)
    group_of = _numbered_groups(optimizer, num_groups, groups)
    if op == ReduceOperation.ADASUM and runtime.size > 1:
        retire_exchanges(runtime, _ids(optimizer))
        return adasum_optimizer(optimizer, compression, process_set)
    _check_options(op, compression, error_feedback=error_feedback, divide_by_contributors=divide_by_contributors)
    names = _checked_names(optimizer, named_parameters)
    wrapped: DistributedMixin = wrap(optimizer, DistributedMixin)
    wrapped._names, wrapped._process_set = names, process_set
    if runtime.size > 1:
        options = ExchangeOptions(
            reduction=_reduction(op, gradient_predivide_factor, runtime.size),
            compression=compression,
            error_feedback=error_feedback,
            passes_per_step=backward_passes_per_step,
            end_in_backward=end_in_backward,
            sparse_as_dense=sparse_as_dense,
            sparse_results=isinstance(optimizer, torch.optim.SparseAdam),
            divide_by_contributors=divide_by_contributors,
            groups=group_of,
        )
        wrapped._exchange = GradientExchange(runtime, _name_parameters(wrapped, names), options)
    else:
        retire_exchanges(runtime, _ids(optimizer))
    return cast("AnyOptimizer", wrapped)


def _ids(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _check_passes(passes: int) -> None:
    if passes < 1:
        raise InvalidArgumentError(f"backward_passes_per_step must be at least 1, not {passes}")


def _check_arguments(optimizer: object, passes: int, op: ReduceOperation, predivide: float) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, DistributedMixin | AdasumMixin):
        raise InvalidArgumentError("the optimizer is a DistributedOptimizer already")
    if op not in (ReduceOperation.AVERAGE, ReduceOperation.SUM, ReduceOperation.ADASUM):
        raise InvalidArgumentError(f"DistributedOptimizer works with op=Average, Sum or Adasum, not {op!r}")
    if predivide != 1.0 and op != ReduceOperation.AVERAGE:
        raise InvalidArgumentError("gradient_predivide_factor goes with op=Average only")
    if predivide <= 0.0:
        raise InvalidArgumentError(f"gradient_predivide_factor must be positive, not {predivide}")
    _check_passes(passes)


def _check_options(
    op: ReduceOperation, compression: type[Compressor], *, error_feedback: bool, divide_by_contributors: bool
) -> None:
    if error_feedback and wire_format_of(compression) in (None, "native"):
        raise InvalidArgumentError("error_feedback goes with compression=Compression.fp16 or Compression.bf16 only")
    if divide_by_contributors and op != ReduceOperation.AVERAGE:
        raise InvalidArgumentError("divide_by_contributors goes with op=Average only")


def _numbered_groups(
    optimizer: torch.optim.Optimizer, num_groups: int, groups: int | Sequence[Sequence[torch.Tensor]] | None
) -> dict[int, int]:
    """The group of each parameter that has one, by the parameter's identity."""
    if num_groups and groups is not None:
        raise InvalidArgumentError("give either groups or the deprecated num_groups, not both")
    if num_groups:
        warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=3)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if groups is None or isinstance(groups, int):
        count = groups or num_groups
        if isinstance(count, bool) or count < 0:
            raise InvalidArgumentError(
                f"groups must be a number of groups or a list of lists of parameters, not {count!r}"
            )
        return {id(parameter): index * count // len(parameters) for index, parameter in enumerate(parameters) if count}
    known = _ids(optimizer)
    members = [parameter for group in groups for parameter in group]
    if any(id(member) not in known for member in members):
        raise InvalidArgumentError("groups holds tensors that are not parameters of the optimizer")
    if len({id(member) for member in members}) != len(members):
        raise InvalidArgumentError("groups holds a parameter more than once")
    return {id(parameter): number for number, group in enumerate(groups) for parameter in group}


def _reduction(op: ReduceOperation, predivide: float, size: int) -> Reduction:
    if predivide == 1.0:
        return Reduction(op)
    return Reduction(ReduceOperation.SUM, 1.0 / predivide, predivide / size)


def _checked_names(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[int, str]:
    """The parameters' names by identity."""
    if named_parameters is None:
        return {}
    named = list(named_parameters)
    if any(not isinstance(item, tuple) or len(item) != 2 for item in named):
        raise InvalidArgumentError(
            "named_parameters must be pairs (name, parameter), as model.named_parameters() gives"
        )
    seen: set[str] = set()
    duplicates = {name for name, _ in named if name in seen or seen.add(name)}  # type: ignore[func-returns-value]
    if duplicates:
        raise InvalidArgumentError(
            f"named_parameters holds these names more than once: {', '.join(sorted(duplicates))}"
        )
    names = {id(parameter): name for name, parameter in named}
    unnamed = sum(id(parameter) not in names for group in optimizer.param_groups for parameter in group["params"])
    if unnamed:
        raise InvalidArgumentError(f"named_parameters names all but {unnamed} of the optimizer's parameters; name all")
    return names


def _name_parameters(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> list[tuple[str, torch.Tensor]]:
    """All parameters in the order of the groups."""
    return [
        (names.get(id(parameter), f"parameter.{group_index}.{index}"), parameter)
        for group_index, group in enumerate(optimizer.param_groups)
        for index, parameter in enumerate(group["params"])
    ]
