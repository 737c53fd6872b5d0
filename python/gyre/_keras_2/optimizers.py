"""Optimizers with what they had in Keras 2: `lr` and `decay`, and `variables()`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from gyre._keras_2.report import report


class _Variables(list[Any]):
    """Also `optimizer.variables()`."""

    def __call__(self) -> _Variables:
        report("optimizer.variables()", "the property optimizer.variables")
        return self


def patch_base(keras: Any) -> None:
    """Of Keras, for all of its names: what all optimizers have."""
    base = keras.optimizers.Optimizer
    base.decay = 0.0
    base.lr = property(_rate, _set_rate)
    variables = base.variables.fget
    base.variables = property(lambda self: _Variables(variables(self)))
    _patch_decay(keras, base)


def _rate(optimizer: Any) -> Any:
    report("optimizer.lr", "optimizer.learning_rate")
    return optimizer.learning_rate


def _set_rate(optimizer: Any, rate: Any) -> None:
    report("optimizer.lr", "optimizer.learning_rate")
    optimizer.learning_rate = rate


def patch_arguments(kind: Any, order: tuple[str, ...] = (), default_rate: float | None = None) -> None:
    """Of a class of optimizers: `order` is that of its positional arguments, unless it is Keras 3's."""
    inherited = kind.__init__
    names = order or tuple(inspect.signature(inherited).parameters)[1:-1]  # Without self and **kwargs.
    default_epsilon = getattr(inspect.signature(inherited).parameters.get("epsilon"), "default", None)

    @functools.wraps(inherited)
    def initialize(self: Any, *arguments: Any, **options: Any) -> None:
        given = dict(zip(names, arguments, strict=False))
        if len(arguments) > len(names):
            raise TypeError(f"{kind.__name__}() takes {len(names)} positional arguments: {', '.join(names)}")
        if twice := set(given) & set(options):
            raise TypeError(f"{kind.__name__}() got {', '.join(sorted(twice))} by position and by name")
        given.update(options)
        decay = float(given.pop("decay", None) or 0.0)
        if "lr" in given:
            report("optimizers' lr=", "learning_rate=")
            given["learning_rate"] = given.pop("lr")
        elif "learning_rate" not in given and default_rate is not None:
            given["learning_rate"] = default_rate
        if isinstance(given.get("learning_rate"), int):
            given["learning_rate"] = float(given["learning_rate"])
        if given.get("epsilon", 0.0) is None:
            given["epsilon"] = default_epsilon
        if given.pop("schedule_decay", 0.004) != 0.004:
            report("Nadam's schedule_decay=", "Keras 3 has 0.004 built in")
        inherited(self, **given)
        if decay:
            report("optimizers' decay=", "the rate in step t is lr / (1 + decay * t), as in Keras 2")
            self.decay = decay

    kind.__init__ = initialize


def _patch_decay(keras: Any, base: Any) -> None:
    """In an update the rate is lr / (1 + decay * iterations). Outside it is lr, which callbacks read and assign."""
    current: Callable[[Any], Any] = base._get_current_learning_rate
    update: Callable[..., Any] = base._backend_apply_gradients
    config_of: Callable[[Any], dict[str, Any]] = base.get_config

    def rate_now(self: Any) -> Any:
        rate = current(self)
        if not (self.decay and self.__dict__.get("_in_update")):
            return rate
        steps = keras.ops.cast(self.iterations, rate.dtype)
        return keras.ops.divide(rate, keras.ops.add(1.0, keras.ops.multiply(self.decay, steps)))

    def apply_gradients(self: Any, *arguments: Any, **options: Any) -> Any:
        self.__dict__["_in_update"] = True
        try:
            return update(self, *arguments, **options)
        finally:
            self.__dict__["_in_update"] = False

    def get_config(self: Any) -> dict[str, Any]:
        """Keras 3 itself ignores `decay` in a file, with a warning."""
        return {**config_of(self), **({"decay": self.decay} if self.decay else {})}

    base._get_current_learning_rate = rate_now
    base._backend_apply_gradients = apply_gradients
    base.get_config = get_config
