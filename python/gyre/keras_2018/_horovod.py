"""Horovod's callbacks with the arguments that they had in 2018: without `initial_lr`, in place of which they took the
optimizer's rate at the beginning of training."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from gyre._keras_2.report import report

_SCHEDULE = ("multiplier", "start_epoch", "end_epoch", "staircase", "momentum_correction", "steps_per_epoch")
_WARMUP = ("warmup_epochs", "momentum_correction", "steps_per_epoch", "verbose")
_INSTEAD = "the initial rate is the optimizer's at the beginning of training, as in Horovod's callbacks of 2018"


def patch_callbacks(module: Any) -> None:
    """Of gyre.keras.callbacks."""
    schedule, warmup = module.LearningRateScheduleCallback, module.LearningRateWarmupCallback
    _patch_beginning(schedule)
    schedule.__init__ = _initialize(schedule, _SCHEDULE)
    warmup.__init__ = _initialize(warmup, _WARMUP)


def _has_initial_rate(names: tuple[str, ...], arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether these are arguments of today's."""
    if "initial_lr" in options:
        return True
    # A first argument that is not the first one of then; a second one that was none then.
    return bool(arguments) and (names[0] in options or (len(arguments) > 1 and callable(arguments[1])))


def _initialize(kind: Any, names: tuple[str, ...]) -> Callable[..., None]:
    inherited = kind.__init__

    @functools.wraps(inherited)
    def initialize(self: Any, *arguments: Any, **options: Any) -> None:
        if _has_initial_rate(names, arguments, options):
            inherited(self, *arguments, **options)
            return
        if len(arguments) > len(names):
            raise TypeError(f"{kind.__name__}() took {len(names)} positional arguments in 2018: {', '.join(names)}")
        report(f"{kind.__name__}() without initial_lr=", _INSTEAD)
        given = {**dict(zip(names, arguments, strict=False)), **options}
        multiplier = given.get("multiplier")
        if multiplier is not None and not callable(multiplier):
            # Then a number was the factor of every epoch, and not the base of a power.
            given["multiplier"], given["staircase"] = (lambda epoch: multiplier), True  # noqa: ARG005
        inherited(self, initial_lr=1.0, **given)
        self.initial_lr = None
        self.begins_with_rate_of_optimizer = True

    return initialize


def _patch_beginning(kind: Any) -> None:
    inherited = kind.on_train_begin

    @functools.wraps(inherited)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        if getattr(self, "begins_with_rate_of_optimizer", False):
            self.initial_lr = float(
                importlib.import_module("keras").ops.convert_to_numpy(self.model.optimizer.learning_rate)
            )
        inherited(self, logs)

    kind.on_train_begin = on_train_begin
