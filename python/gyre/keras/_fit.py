"""One call of model.fit() on this rank: what the ranks agree on in it, whichever of Gyre's callbacks it has.

Its callbacks share one of these for a model. It
* broadcasts the root's variables before the first batch, if a callback asks for it,
* checks that the ranks' optimizers exchange alike, after the first batch that every trainable variable was exchanged
  and is equal on all ranks, at the end of an epoch that the learning rates are, and at the end the variables again,
* waits at the end of an epoch for ranks with more batches, and gives all ranks the state of one that had most,
* ends fit() on all ranks after the same epoch, if a callback on any of them asks for that (EarlyStopping),
* raises Gyre's own error where TensorFlow would raise one that only quotes it.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy

from gyre._job import arrays
from gyre._job.joining import join
from gyre._job.process_sets import ProcessSet, global_process_set, root_in, runtime_of
from gyre._operations import Kind, ReduceOperation, Reduction
from gyre._program_position import stacklevel_of_program
from gyre._runtime import current
from gyre.errors import MismatchError, UnsupportedError
from gyre.keras import _state
from gyre.keras._optimizer import DistributedMixin, Distribution, counter_of

_WHAT = "the variables of model and optimizer"

_fits: weakref.WeakKeyDictionary[Any, Fit] = weakref.WeakKeyDictionary()


def fit_of(model: Any) -> Fit:
    """The same for all callbacks of a model."""
    if model not in _fits:
        _fits[model] = Fit(model)
    return _fits[model]


class Fit:
    """Used by the thread that calls fit(). With one rank nothing happens."""

    def __init__(self, model: Any) -> None:
        self._model: Any = weakref.proxy(model)
        self._root: int | None = None  # Whose variables to broadcast, as long as that has not happened,
        self._kept: set[int] = set()  # without these, by identity.
        self._was_broadcast = False
        self._checked_exchange = False
        self._checked_replicas = False
        self._in_epoch = False
        self._agreed_on_options = False
        self._differ = False  # Replicas that were found to.
        self._all_end = False  # After the last epoch all ranks end fit().
        self.batches = 0  # This rank's, of the epoch.

    def begin(self) -> None:
        """on_train_begin(), of each callback."""
        self._checked_exchange = self._checked_replicas = self._in_epoch = False
        self._differ = self._all_end = False
        if current().size > 1:
            self._agree_on_options()
            self._follow_history()
        if current().size > 1 and keras.backend.backend() == "tensorflow":
            self._prepare_tensorflow()

    def ask_for_broadcast(self, root: int, kept: Sequence[Any]) -> None:
        """Of all variables but `kept`: now if the model is built, else after the first batch."""
        if current().size == 1:
            return
        self._root = root_in(global_process_set, root, "BroadcastGlobalVariablesCallback")
        self._kept = {id(variable) for variable in kept}
        self._was_broadcast = False
        if self._model.built:
            optimizer = self._model.optimizer
            if optimizer is not None and not optimizer.built:
                optimizer.build(self._model.trainable_variables)
            self._broadcast()

    def begin_epoch(self) -> None:
        """on_epoch_begin(), of each callback."""
        self._in_epoch = True
        self.batches = 0

    def end_batch(self) -> None:
        """on_train_batch_end(), of each callback."""
        self.batches += 1
        if self._checked_replicas or current().size == 1:
            return
        if not self._checked_exchange:
            self._check_exchange()
            self._checked_exchange = True
        if self._root is not None:
            self._broadcast()  # The model was not built before; the next batch shows whether the ranks stay equal.
        elif getattr(self._model, "steps_per_execution", 1) == 1 and self._has_stepped():
            self._check_replicas("after the first batch")
            self._checked_replicas = True
        # Else ranks with few batches have made fewer steps by now: at the end of the epoch.

    def end_batches(self) -> None:
        """All batches of an epoch are done: before its validation, or at its end. Collective."""
        if not self._in_epoch:
            return  # Of an evaluate() of its own, or done already.
        self._in_epoch = False
        if current().size == 1:
            return
        own = self._distributions()
        for one in Distribution.all:
            one.is_idle = self.batches > 0 and one not in own
        for process_set in self._process_sets():
            # Every operation, for the rows of sparse gradients: this rank has none.
            join(process_set=process_set, every_operation=True)
            runtime = runtime_of(process_set)
            calls = sum(int(counter_of(one).numpy()) for one in self._optimizers())
            rates = [_rate_of(one) for one in self._optimizers()]
            unchecked = not self._checked_replicas and self._root is None
            row = numpy.array([[calls, unchecked, *rates]], numpy.float64)
            [handle] = arrays.run(runtime, [arrays.request(runtime, Kind.ALLGATHER, row)])
            memory, shape, _ = handle.take_result()
            everybodys = arrays.array_over(memory, row.dtype, shape)
            if len(set(everybodys[:, 0].tolist())) == 1:
                _check_rates(everybodys[:, 2:], process_set)
            else:
                # Not that of the rank that joined last: passes that are only added up wait for no other rank.
                _state.broadcast(runtime, self._variables(), int(everybodys[:, 0].argmax()), _WHAT)
                for one in self._distributions():
                    one.forget_passes()  # The ranks' numbers of passes since their last step differ.
            if process_set is global_process_set and everybodys[:, 1].all():
                self._check_replicas("after the first epoch")
        # Also on a rank that had no batch yet: the others have compared theirs.
        self._checked_replicas = self._root is None

    def _agree_on_options(self) -> None:
        """MismatchError if the ranks' optimizers would not meet. Once for all callbacks of a fit()."""
        if self._agreed_on_options:
            return
        self._agreed_on_options = True
        for process_set in self._process_sets():
            own = [
                f"backward_passes_per_step={one.passes_per_step}, "
                f"average_aggregated_gradients={one.average_passes}, sparse_as_dense={one.sparse_as_dense}"
                for one in self._distributions()
                if one.process_set is process_set
            ]
            arrays.check_equal(runtime_of(process_set), "\n".join(own), "the options of DistributedOptimizer")

    def _follow_history(self) -> None:
        """fit() looks whether to stop after its callbacks have seen an epoch. Keras's History comes after those of the
        program, and sees what they leave. A loop that calls callbacks itself may have none."""
        history = getattr(self._model, "history", None)
        if not isinstance(history, keras.callbacks.History) or "on_epoch_end" in vars(history):
            return
        inherited, end = history.on_epoch_end, history.on_train_end

        def on_epoch_end(epoch: int, logs: Any = None) -> None:
            inherited(epoch, logs)
            goes_on = epoch + 1 < (history.params or {}).get("epochs", 0)
            for process_set in self._process_sets():
                runtime, own = runtime_of(process_set), numpy.array([bool(self._model.stop_training), goes_on], int)
                any_of_them = numpy.empty_like(own)
                maximum = Reduction(ReduceOperation.MAX)
                request = arrays.request(runtime, Kind.ALLREDUCE, own, target=any_of_them, reduction=maximum)
                arrays.run(runtime, [request])
                self._model.stop_training = bool(any_of_them[0])
                self._all_end = bool(any_of_them[0] or not any_of_them[1])

        def on_train_end(logs: Any = None) -> None:
            end(logs)
            self._agreed_on_options = False
            if self._all_end and self._checked_replicas and not self._differ:
                self._check_replicas("at the end of fit()", may_raise=False)

        history.on_epoch_end, history.on_train_end = on_epoch_end, on_train_end

    def _optimizers(self) -> list[Any]:
        """All that are found on the model: a subclass of Model may have several."""
        found = [self._model.optimizer, *vars(self._model).values()]
        return list({id(one): one for one in found if isinstance(one, keras.optimizers.Optimizer)}.values())

    def _distributions(self) -> list[Distribution]:
        return [one._gyre for one in self._optimizers() if isinstance(one, DistributedMixin) and one._gyre is not None]

    def _process_sets(self) -> list[ProcessSet]:
        """Those of this rank's exchanges."""
        sets = [one.process_set for one in self._distributions() if one.exchange is not None]
        return list(dict.fromkeys(sets))

    def _variables(self) -> list[Any]:
        variables = _state.variables_of(self._model, self._optimizers())
        return [variable for variable in variables if id(variable) not in self._kept]

    def _broadcast(self) -> None:
        root, self._root = self._root, None
        assert root is not None
        _state.broadcast(current(), self._variables(), root, _WHAT)
        self._was_broadcast = True

    def _prepare_tensorflow(self) -> None:
        """UnsupportedError before the first step where XLA would compile it, or several replicas would make it."""
        if getattr(self._model, "jit_compile", False) is True:
            raise UnsupportedError(
                "Gyre's exchange cannot be compiled by XLA: pass jit_compile=False to model.compile()"
            )
        from gyre._tensorflow.gradients import check_strategy  # noqa: PLC0415  Imports TensorFlow.

        check_strategy(self._model.distribute_strategy)
        step = self._model.train_function
        if step is not None and not isinstance(step, _Step):
            self._model.train_function = _Step(step, self._distributions)

    def _check_exchange(self) -> None:
        """UnsupportedError if a trainable variable was not exchanged in the first batch."""
        distributions = self._distributions()
        # In a loop of its own another model's optimizer may train this one, as a part of that.
        considered = distributions if getattr(self._model, "history", None) is not None else list(Distribution.all)
        known = {key for one in considered for key in (*one.exchanged, *one.local)}
        missing = [variable for variable in self._model.trainable_variables if id(variable) not in known]
        if missing:
            raise UnsupportedError(_unexchanged(missing, self._model, distributions))

    def _has_stepped(self) -> bool:
        """Whether the optimizers have applied what they have added up."""
        return all(one.passes is None or int(one.passes.numpy()) == 0 for one in self._distributions())

    def _check_replicas(self, when: str, *, may_raise: bool = True) -> None:
        """Whether the ranks' trainable variables are equal, as they must be if all began as equals and every gradient
        was reduced."""
        distributions = self._distributions()
        kept = self._kept | {key for one in distributions for key in one.local}
        if any(one.process_set is not global_process_set for one in distributions):
            return  # Other ranks train other replicas.
        found = _state.difference(
            current(), [variable for variable in self._model.trainable_variables if id(variable) not in kept]
        )
        if found is None:
            return
        self._differ = True
        variable, ranks = found
        where = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        differs = f"{when} '{variable.path}' on {where} differs from rank 0"
        if self._was_broadcast and may_raise:
            raise MismatchError(
                f"{differs}, though all ranks began with the same values: something differs between the ranks "
                "besides their data (the learning rate, another optimizer, a train_step() or callback that assigns to "
                "it). Make that the same on all ranks, or keep the variable local with register_local_var() and "
                "local_variables="
            )
        if may_raise:
            why = (
                "the ranks did not begin with the same values, and averaged gradients change them all alike. Add "
                "BroadcastGlobalVariablesCallback(0) to fit()'s callbacks, or use one seed on all ranks"
            )
        else:
            why = (
                "a callback has changed it by what this rank alone has seen (EarlyStopping(restore_best_weights=True), "
                "say). Put MetricAverageCallback before those that decide by metrics"
            )
        if current().rank == 0:
            warnings.warn(f"{differs}: {why}", RuntimeWarning, stacklevel=stacklevel_of_program())


def _rate_of(optimizer: Any) -> float:
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def _check_rates(rates: Any, process_set: ProcessSet) -> None:
    """`rates`: a row for each rank of the set, a column for each optimizer."""
    for rank, row in enumerate(rates):
        for first, other in zip(rates[0], row, strict=True):
            if first != other and not numpy.isnan([first, other]).all():
                names = [process_set.ranks[one] if process_set.ranks else one for one in (0, rank)]
                raise MismatchError(
                    f"the learning rate is {first:g} on rank {names[0]} and {other:g} on rank {names[1]}, so "
                    "their models are no longer the same. A callback has changed it by what one rank has seen: put "
                    "MetricAverageCallback before those that decide by metrics (ReduceLROnPlateau), and give all ranks "
                    "the same schedule"
                )


class _Step:
    """A train_function that raises what an exchange failed with, in place of TensorFlow's error about it."""

    def __init__(self, function: Callable[[Any], Any], distributions: Callable[[], Sequence[Distribution]]) -> None:
        self._function = function
        self._distributions = distributions

    def __call__(self, iterator: Any) -> Any:
        try:
            return self._function(iterator)
        except Exception:
            for one in self._distributions():
                if one.exchange is not None:
                    one.exchange.raise_failure()
            raise


def _unexchanged(missing: Sequence[Any], model: Any, distributions: Sequence[Distribution]) -> str:
    count = f"{len(missing)} of {len(model.trainable_variables)} trainable variables"
    begin = f"'{missing[0].path}' ({count}) was not exchanged between the ranks in the first batch"
    if not distributions:
        return (
            f"{begin}: the model's optimizer, {type(model.optimizer).__name__}, is not a DistributedOptimizer. Pass "
            "optimizer=DistributedOptimizer(…) to model.compile()"
        )
    return (
        f"{begin}, so each rank trains it on its own data. Another optimizer, or a train_step() of the model's own, "
        "changes it: pass its gradient to the DistributedOptimizer, wrap the other optimizer too, or freeze it "
        "(trainable = False)"
    )
