"""Callbacks for model.fit(), with Horovod's names."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import keras
import numpy

from gyre._job import arrays
from gyre._job.process_sets import ProcessSet, global_process_set, runtime_of
from gyre._operations import Kind, ReduceOperation, Reduction
from gyre._runtime import Runtime, current
from gyre.core.metrics import log
from gyre.errors import InvalidArgumentError
from gyre.keras._fit import Fit, fit_of
from gyre.keras._values import allreduce

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "LogMetricsCallback",
    "MetricAverageCallback",
]

Logs = dict[str, Any] | None


class _JobCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """One that takes part in what the ranks agree on during fit()."""

    checks_fit = True

    @property
    def _fit(self) -> Fit:
        return fit_of(self.model)

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        self._fit.begin()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self._fit.begin_epoch()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self._fit.end_batch()

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        self._fit.end_batches()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self._fit.end_batches()


class BroadcastGlobalVariablesCallback(_JobCallback):
    """All ranks begin with the variables of the model and the optimizer of `root_rank`.

    They are sent before the first batch, or after it if the model is not built before. `local_variables`: those that
    keep their values on each rank. `device` is for compatibility with Horovod.
    """

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        del device
        self.root_rank = root_rank
        self._local = list(local_variables or ())

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)
        self._fit.ask_for_broadcast(self.root_rank, self._local)


class MetricAverageCallback(_JobCallback):
    """At the end of an epoch every number in its logs becomes the average over the ranks of `process_set`, for
    callbacks after this one and for fit()'s history. Put it before those that decide by metrics (ReduceLROnPlateau,
    EarlyStopping). A rank that had no batch in the epoch has no metrics of it, and gets the others'."""

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        del device
        self._process_set = process_set

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        super().on_epoch_end(epoch, logs)
        runtime = runtime_of(self._process_set, "MetricAverageCallback")
        if logs is None or runtime.size == 1:
            return
        own = {name: float(value) for name, value in sorted(logs.items()) if _is_number(value)}
        names = _agreed_names(runtime, list(own), trained=self._fit.batches > 0)
        if not names:
            return
        # In the second row, how many have it.
        sums = numpy.array([[own.get(name, 0.0) for name in names], [float(name in own) for name in names]])
        everybodys = numpy.empty_like(sums)
        reduction = Reduction(ReduceOperation.SUM)
        arrays.run(runtime, [arrays.request(runtime, Kind.ALLREDUCE, sums, target=everybodys, reduction=reduction)])
        logs.update(zip(names, (everybodys[0] / everybodys[1]).tolist(), strict=True))


def _agreed_names(runtime: Runtime, own: list[str], *, trained: bool) -> list[str]:
    """Of the epoch's metrics: those of the ranks that had batches, which are MismatchError if they differ."""
    everybodys = arrays.gather_bytes(runtime, "\n".join([str(trained), *own]).encode())
    lists = [content.decode().split("\n") for content in everybodys]
    of_trained = next((names[1:] for names in lists if names[0] == str(True)), own)
    agreed = of_trained if not trained and set(own) <= set(of_trained) else own
    arrays.check_equal(runtime, "\n".join(agreed), "the metrics of the epoch")
    return agreed


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) or (hasattr(value, "__float__") and getattr(value, "shape", None) == ())


class LogMetricsCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives gyre.log the logs of every `every`-th batch, and at the end of an epoch those of the epoch (epoch_loss and
    the like) and of validation (val_…), with the number of the optimizer's steps. Put it behind those that change the
    logs, such as MetricAverageCallback."""

    def __init__(self, every: int = 10) -> None:
        super().__init__()
        self.every = every

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if batch % self.every == 0:
            self._log(logs or {})

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        of_epoch = {name if name.startswith("val_") else f"epoch_{name}": value for name, value in (logs or {}).items()}
        self._log({"epoch": epoch, **of_epoch})

    def _log(self, logs: dict[str, Any]) -> None:
        numbers = {name: float(value) for name, value in logs.items() if _is_number(value)}
        log(numbers, int(self.model.optimizer.iterations))


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """From `start_epoch` until before `end_epoch` the learning rate is initial_lr * multiplier(epoch).

    `multiplier`: a function of the epoch, or a number, whose power by (epoch - start_epoch) is taken. `staircase`: the
    rate changes at the first batch of an epoch; otherwise at each batch, with epoch + batch / steps_per_epoch.
    `momentum_correction`: where the rate changes, the accumulated momentum is scaled by new rate / old rate, so that
    what is left of former gradients weighs as in their own steps (Goyal et al., arXiv:1706.02677). `steps_per_epoch`:
    for data sets that do not tell it; the largest of the ranks' counts, so that all have one rate. The epoch's rate is
    written into its logs as "lr".
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise InvalidArgumentError("initial_lr is needed")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            factor = multiplier
            self.multiplier = lambda epoch: factor ** (epoch - start_epoch)

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        if self.staircase:
            return
        own = self.steps_per_epoch or (self.params or {}).get("steps") or 0
        self.steps_per_epoch = int(allreduce(numpy.int64(own), op=ReduceOperation.MAX))
        if not self.steps_per_epoch:
            raise InvalidArgumentError(
                f"{type(self).__name__}: the number of batches of an epoch is unknown; pass steps_per_epoch"
            )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if self.staircase:
            if batch == 0:
                self._set_rate(epoch)
        else:
            assert self.steps_per_epoch is not None
            self._set_rate(epoch + batch / self.steps_per_epoch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        if logs is not None:
            logs["lr"] = _rate_of(self.model.optimizer)

    def _set_rate(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = _rate_of(optimizer), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        if self.momentum_correction and old not in (0.0, new):
            # The same as another momentum for one batch, which a traced step would not see.
            for variable in _momentum_of(optimizer):
                variable.assign(variable * (new / old))


def _rate_of(optimizer: Any) -> float:
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def _momentum_of(optimizer: Any) -> list[Any]:
    """The variables in which SGD and RMSprop accumulate momentum."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not getattr(optimizer, "momentum", None):
        return []
    kept = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or []
    return [variable for variable in kept if variable is not None]


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """From initial_lr / size() to initial_lr within `warmup_epochs`, a little with every batch: a rate that was
    multiplied by the number of ranks is too large for the first epochs (Goyal et al., arXiv:1706.02677)."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

        def multiplier(epoch: float) -> float:
            # One batch further, so that the last batch of the warm-up has the whole rate.
            assert self.steps_per_epoch is not None
            ranks = current().size
            return 1 / ranks * ((epoch + 1 / self.steps_per_epoch) * (ranks - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,  # type: ignore[arg-type]
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose > 0 and epoch == self.warmup_epochs - 1:
            rate = _rate_of(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


_UNASSIGNED = "unassigned.keras"


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """ModelCheckpoint with save_best_only. `filepath` can also be assigned after construction, as in Horovod."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        filepath: str = _UNASSIGNED,
    ) -> None:
        super().__init__(filepath, monitor, verbose, save_best_only=True, mode=mode, save_freq=save_freq)

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)
        if self.filepath == _UNASSIGNED:
            raise InvalidArgumentError("BestModelCheckpoint: assign its filepath before fit()")
