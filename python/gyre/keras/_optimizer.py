"""The optimizer that averages gradients over all ranks before it applies them."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, ClassVar, TypeVar

import keras

from gyre._job.compression import Compression, Compressor, wire_format_of
from gyre._job.gradient_exchange import NO_GROUP, ExchangeOptions, GradientExchange, Layout, Source
from gyre._job.process_sets import ProcessSet, global_process_set, runtime_of
from gyre._operations import ReduceOperation, Reduction
from gyre._program_position import stacklevel_of_program
from gyre._runtime import Runtime, current
from gyre.errors import CallOrderError, InvalidArgumentError, UnsupportedError
from gyre.keras import _state
from gyre.keras._back_end import BackEnd, back_end

AnyOptimizer = TypeVar("AnyOptimizer")


@dataclass(eq=False)
class Distribution:
    """What DistributedOptimizer adds to an optimizer. Copies and pickles of the optimizer share or lose it."""

    all: ClassVar[weakref.WeakSet[Distribution]] = weakref.WeakSet()  # Of this process.

    runtime: Runtime
    exchange: GradientExchange | None  # None with one rank: nothing to exchange.
    back_end: BackEnd
    compression: type[Compressor]
    sparse_as_dense: bool
    passes_per_step: int
    average_passes: bool
    process_set: ProcessSet
    scale_local_gradients: bool
    groups: int | Sequence[Sequence[Any]] | None
    reduction: Reduction
    local: dict[int, Any] = field(default_factory=dict)  # Variables whose gradients stay on their rank, by identity;
    exchanged: dict[int, Any] = field(default_factory=dict)  # and those whose gradients, if any, are exchanged,
    accumulators: list[Any] = field(default_factory=list)  # and where passes are added up.
    passes: Any = None  # A variable: passes since the last step.
    applying: bool = False
    compared_start: bool = False
    is_idle: bool = False  # A fit() of another model ends an epoch, in which this rank has had batches.

    def __post_init__(self) -> None:
        self.all.add(self)

    def __deepcopy__(self, memo: object) -> Distribution:
        return self

    def forget_passes(self) -> None:
        """What has been added up since the last step is dropped."""
        if self.passes is not None:
            self.passes.assign(0)
            for sums in self.accumulators:
                sums.assign(keras.ops.zeros(sums.shape, sums.dtype))


class DistributedMixin:
    """The mixin that DistributedOptimizer adds to an optimizer's class."""

    _gyre: Distribution | None = None
    built: bool
    _trainable_variables: list[Any]

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        """The ranks' gradients reduced, then the class's own apply(). Collective."""
        state = self._gyre
        inherited: Any = super()
        if state is None or len(grads) == 0:
            return inherited.apply(grads, trainable_variables)
        if trainable_variables is None and not self.built:
            return inherited.apply(grads)  # Raises Keras's own error.
        known = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        state.applying = True
        state.exchanged.update((id(variable), variable) for variable in known if id(variable) not in state.local)
        if not state.compared_start and state.exchange is not None:
            state.compared_start = True
            _compare_start(state, known)
        if state.passes_per_step == 1:
            return inherited.apply(_reduced(state, list(grads), known), known)
        return _accumulate(self, state, list(grads), known, inherited.apply)

    def apply_gradients(self, grads_and_vars: Any) -> Any:
        """As in Keras. UnsupportedError for a class whose own apply_gradients() does not call apply()."""
        state = self._gyre
        inherited: Any = super()
        if state is None:
            return inherited.apply_gradients(grads_and_vars)
        pairs = list(grads_and_vars)
        state.applying = False
        result = inherited.apply_gradients(pairs)
        if pairs and not state.applying:
            raise UnsupportedError(
                f"{type(self).__name__}.apply_gradients() does not call apply(), where DistributedOptimizer reduces "
                f"the ranks' gradients: '{_path(pairs[0][1])}' and the others would be trained on each rank's own data"
            )
        return result

    def register_local_var(self, var: Any) -> None:
        """The gradient of `var` stays on this rank, divided by the number of ranks unless scale_local_gradients is
        False."""
        if self._gyre is not None:
            self._gyre.local[id(var)] = var


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", None) or getattr(variable, "name", variable))


def _reduced(state: Distribution, grads: list[Any], variables: Sequence[Any]) -> list[Any]:
    """The gradients, with those that are exchanged replaced by the reduced ones."""
    if state.exchange is None:
        return grads
    _refuse_inside_loss_scaling()
    result = list(grads)
    dense: list[int] = []
    sparse: list[int] = []
    for index, (gradient, variable) in enumerate(zip(grads, variables, strict=True)):
        if id(variable) in state.local:
            if gradient is not None and state.scale_local_gradients:
                result[index] = state.back_end.multiply(gradient, 1.0 / state.runtime.size)
            continue
        if gradient is not None:
            is_sparse = state.back_end.is_sparse(gradient)
            if is_sparse and state.sparse_as_dense:
                result[index] = state.back_end.to_dense(gradient)
            (sparse if is_sparse and not state.sparse_as_dense else dense).append(index)
    _reduce_dense(state, state.exchange, result, variables, dense)
    for index in sparse:
        result[index] = state.back_end.reduce_sparse(state.runtime, result[index], state.reduction)
    return result


def _reduce_dense(
    state: Distribution, exchange: GradientExchange, result: list[Any], variables: Sequence[Any], indices: list[int]
) -> None:
    """Replaces result[index] for each of the indices."""
    layout, order, compressed = _lay_out(state, exchange, result, variables, indices)
    reduced = state.back_end.reduce(layout, [tensor for tensor, _ in compressed])
    for index, tensor, (_, context) in zip(order, reduced, compressed, strict=True):
        result[index] = state.compression.decompress(tensor, context)


def _name(index: int, variable: Any) -> str:
    """Equal on all ranks: Keras numbers the layers in a path by how many this process has made."""
    return f"{index}.{getattr(variable, 'name', 'variable')}"


def _numbered_groups(groups: int | Sequence[Sequence[Any]] | None, variables: Sequence[Any]) -> dict[int, int]:
    """The group of each variable that has one, by the variable's identity. A number divides all variables into so many
    lists, in order."""
    if groups is None:
        return {}
    if isinstance(groups, int):
        count = min(groups, len(variables))
        return (
            {id(variable): index * count // len(variables) for index, variable in enumerate(variables)} if count else {}
        )
    return {id(variable): number for number, members in enumerate(groups) for variable in members}


def _accumulate(
    optimizer: Any, state: Distribution, grads: list[Any], variables: Sequence[Any], apply: Callable[..., Any]
) -> None:
    """Adds the gradients up; every passes_per_step-th time they are reduced and applied, and the sums start anew."""
    if not optimizer.built:
        optimizer.build(list(variables))
    if state.passes is None:
        state.passes = keras.Variable("zeros", (), "int32", trainable=False, name="passes")
        state.accumulators = [
            keras.Variable("zeros", variable.shape, variable.dtype, trainable=False, name="accumulated_gradient")
            for variable in variables
        ]
    for gradient, variable in zip(grads, variables, strict=True):
        if gradient is not None and state.back_end.is_sparse(gradient) and not state.sparse_as_dense:
            raise InvalidArgumentError(
                f"backward_passes_per_step={state.passes_per_step}: the gradient of '{_path(variable)}' is sparse, and "
                "sparse gradients are not added up; pass sparse_as_dense=True"
            )
    for sums, gradient in zip(state.accumulators, grads, strict=True):
        if gradient is not None:
            sums.assign_add(keras.ops.cast(state.back_end.to_dense(gradient), sums.dtype))
    state.passes.assign_add(1)

    def step() -> None:
        factor = 1.0 / state.passes_per_step if state.average_passes else 1.0
        totals = [
            None if gradient is None else keras.ops.multiply(sums.value, keras.ops.cast(factor, sums.dtype))
            for sums, gradient in zip(state.accumulators, grads, strict=True)
        ]
        apply(_reduced(state, totals, variables), variables)
        state.forget_passes()

    def only_count() -> None:
        counter_of(optimizer).assign_add(1)

    state.back_end.conditionally(keras.ops.equal(state.passes, state.passes_per_step), step, only_count)


def counter_of(optimizer: Any) -> Any:
    """The variable behind `iterations`, which counts steps rather than calls under gradient_accumulation_steps. Keras's
    first versions have only that."""
    return optimizer._iterations if hasattr(optimizer, "_iterations") else optimizer.iterations


def _compare_start(state: Distribution, variables: Sequence[Any]) -> None:
    """At the first step of a fit() without any of Gyre's callbacks, which would do so: a warning on rank 0 if the ranks
    have different values. Other loops may broadcast later."""
    if state.process_set is not global_process_set or not _is_in_fit_alone():
        return
    with state.back_end.outside_of_graphs():
        found = _state.difference(state.runtime, [one for one in variables if id(one) not in state.local])
    if found is None or state.runtime.rank != 0:
        return
    warnings.warn(
        f"'{_path(found[0])}' on rank {found[1][0]} differs from rank 0: the ranks do not begin with the same values, "
        "and averaged gradients change them all alike, so each rank trains another model. Add "
        "BroadcastGlobalVariablesCallback(0) to fit()'s callbacks, or use one seed on all ranks",
        RuntimeWarning,
        stacklevel=stacklevel_of_program(),
    )


def _is_in_fit_alone() -> bool:
    """Whether the innermost fit() of a model that has called us has none of Gyre's callbacks."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "fit" and isinstance(frame.f_locals.get("callbacks"), keras.callbacks.CallbackList):
            callbacks = frame.f_locals["callbacks"].callbacks
            return not any(getattr(one, "checks_fit", False) for one in callbacks)
        frame = frame.f_back
    return False


def _refuse_inside_loss_scaling() -> None:
    """UnsupportedError where a LossScaleOptimizer around this one has already decided by this rank's gradients alone
    whether to step: ranks that decide otherwise would never meet."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_stateful_handle_finite_grads":
            raise UnsupportedError(
                "a LossScaleOptimizer around a DistributedOptimizer decides by this rank's gradients alone whether to "
                "step. Wrap it the other way: "
                "compile(optimizer=DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)))"
            )
        frame = frame.f_back


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: AnyOptimizer,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOperation = ReduceOperation.AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> AnyOptimizer:
    """`optimizer`, with gradients averaged over all ranks in apply(), before clipping, weight decay and the update.

    The optimizer itself changes: it is returned, under a class of the same name, with its state; saved models hold the
    plain class and load without Gyre. Collective: every rank wraps its optimizers in the same order.
    compression: how float32 gradients are sent between hosts: Compression.none, .fp16 or .bf16, or your own class, in
        whose type they are sent and summed.
    sparse_as_dense: exchange sparse gradients (tf.IndexedSlices) as dense ones, instead of gathering their rows.
    gradient_predivide_factor: gradients are divided by it before the sum and multiplied after (op=Average only).
    op: Average or Sum.
    backward_passes_per_step: number of calls of apply() whose gradients are added up before one exchange and update;
        `iterations` counts every call. average_aggregated_gradients: divide these sums by that number.
    groups: lists of variables whose gradients are exchanged together, however large; or the number of lists to divide
        all variables into, in order. num_groups: deprecated form.
    process_set: exchange among these ranks only. On a rank outside the set the optimizer works alone.
    scale_local_gradients: see register_local_var() of the result.
    device_dense, device_sparse, name: for compatibility with Horovod.

    Invalid arguments raise InvalidArgumentError, ranks that disagree MismatchError.
    """
    del name, device_dense, device_sparse
    _check(optimizer, op, gradient_predivide_factor, backward_passes_per_step)
    if isinstance(groups, int) and groups < 0:
        raise InvalidArgumentError(f"groups must be a number of lists or lists of variables, not {groups}")
    framework = back_end()
    included = process_set is global_process_set or process_set.included()
    runtime = runtime_of(process_set, "DistributedOptimizer") if included else current()
    reduction = Reduction(op, 1.0 / gradient_predivide_factor, gradient_predivide_factor)
    wire = wire_format_of(compression)
    wrapped: Any = optimizer
    base = type(wrapped)
    exchange = None
    if included and runtime.size > 1:
        framework.check_program()
        exchange = GradientExchange(runtime, ExchangeOptions(reduction, wire or "native"))
    wrapped.__class__ = type(
        base.__name__, (DistributedMixin, base), {"__doc__": base.__doc__, "__module__": base.__module__}
    )
    state = Distribution(
        runtime=runtime,
        exchange=exchange,
        back_end=framework,
        compression=Compression.none if wire is not None else compression,
        sparse_as_dense=sparse_as_dense,
        passes_per_step=backward_passes_per_step,
        average_passes=average_aggregated_gradients,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        groups=groups if groups is not None else num_groups or None,
        reduction=reduction,
    )
    _attach(state, wrapped)
    return optimizer


def _attach(state: Distribution, optimizer: Any) -> None:
    optimizer.__dict__["_gyre"] = state
    exchange = state.exchange
    if exchange is not None:
        exchange.before_join = lambda: _lay_out_zeros(optimizer, state, exchange)


def distribute_instead(optimizer: Any, former: Any) -> None:
    """`optimizer`, of the class of `former`, a DistributedOptimizer, which is not used any more, exchanges gradients as
    that did."""
    state, former.__dict__["_gyre"] = former._gyre, None
    if state is not None:
        _attach(state, optimizer)


def PartialDistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: AnyOptimizer, *arguments: Any, local_layers: Any = None, **options: Any
) -> AnyOptimizer:
    """DistributedOptimizer(optimizer, …), with the variables of `local_layers` (a layer or several, built) registered
    as local: see register_local_var()."""
    wrapped: Any = DistributedOptimizer(optimizer, *arguments, **options)
    layers = [local_layers] if isinstance(local_layers, keras.layers.Layer) else list(local_layers or ())
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise InvalidArgumentError(f"local_layers must be Keras layers, not {type(layer).__name__}")
        if not layer.built:
            raise InvalidArgumentError(f"layer '{layer.name}' is not built yet, so its variables are not known")
        for variable in layer.trainable_variables:
            wrapped.register_local_var(variable)
    return optimizer


def _lay_out_zeros(optimizer: Any, state: Distribution, exchange: GradientExchange) -> None:
    """For a rank that joins before its first step, and must know what the others exchange in theirs: dense gradients of
    all variables. Nothing for an optimizer that nobody uses."""
    if not optimizer.built:
        if state.is_idle:
            return
        raise CallOrderError(
            "this rank has no batch at all, and its model is not built, so it cannot take part in the others' steps: "
            "give the model an Input, or call model.build()"
        )
    variables = optimizer._trainable_variables
    indices = [index for index, variable in enumerate(variables) if id(variable) not in state.local]
    _lay_out(state, exchange, [state.back_end.zeros_like(v) for v in variables], variables, indices)


def _lay_out(
    state: Distribution, exchange: GradientExchange, gradients: list[Any], variables: Sequence[Any], indices: list[int]
) -> tuple[Layout, list[int], list[tuple[Any, Any]]]:
    """The layout of the gradients at these indices, these in its order, and what they are compressed to, with the
    context. Backward produces the last variables' gradients first."""
    order = indices[::-1]
    compressed = [state.compression.compress(gradients[index]) for index in order]
    group_of = _numbered_groups(state.groups, [variables[index] for index in indices])
    layout = exchange.lay_out(
        [
            state.back_end.describe(
                _name(index, variables[index]), tensor, group_of.get(id(variables[index]), NO_GROUP)
            )
            for index, (tensor, _) in zip(order, compressed, strict=True)
        ],
        [
            Source(_path(variable), gradient is not None)
            for variable, gradient in zip(variables, gradients, strict=True)
            if id(variable) not in state.local
        ],
    )
    return layout, order, compressed


def _check(optimizer: object, op: ReduceOperation, predivide: float, passes: int) -> None:
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise InvalidArgumentError(f"expected a keras.optimizers.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, DistributedMixin):
        raise InvalidArgumentError("the optimizer is already a DistributedOptimizer")
    if op not in (ReduceOperation.AVERAGE, ReduceOperation.SUM):
        raise InvalidArgumentError(f"DistributedOptimizer of Keras works with op=Average or Sum, not {op!r}")
    if predivide != 1.0 and op != ReduceOperation.AVERAGE:
        raise InvalidArgumentError("gradient_predivide_factor can be used with op=Average only")
    if predivide <= 0.0:
        raise InvalidArgumentError(f"gradient_predivide_factor must be positive, not {predivide}")
    if passes < 1:
        raise InvalidArgumentError(f"backward_passes_per_step must be at least 1, not {passes}")
