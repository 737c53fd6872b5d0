"""Optimizers with the arguments, defaults and decay of Keras 2.0 to 2.2."""

from __future__ import annotations

from typing import Any

from gyre._keras_2 import optimizers

#: The arguments in their order, and the learning rate unless given.
ARGUMENTS: dict[str, tuple[tuple[str, ...], float]] = {
    "SGD": (("lr", "momentum", "decay", "nesterov"), 0.01),
    "RMSprop": (("lr", "rho", "epsilon", "decay"), 0.001),
    "Adagrad": (("lr", "epsilon", "decay"), 0.01),
    "Adadelta": (("lr", "rho", "epsilon", "decay"), 1.0),
    "Adam": (("lr", "beta_1", "beta_2", "epsilon", "decay", "amsgrad"), 0.001),
    "Adamax": (("lr", "beta_1", "beta_2", "epsilon", "decay"), 0.002),
    "Nadam": (("lr", "beta_1", "beta_2", "epsilon", "schedule_decay"), 0.002),
}


def patch_classes(keras: Any) -> None:
    """Of Keras, for all of its names."""
    for name, (arguments, rate) in ARGUMENTS.items():
        optimizers.patch_arguments(getattr(keras.optimizers, name), arguments, rate)
    optimizers.patch_base(keras)
