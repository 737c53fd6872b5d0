"""Small Keras models and data for tests, the same on every rank that asks with the same seed."""

from __future__ import annotations

from typing import Any

import keras
import numpy

Array = numpy.ndarray[Any, Any]


def network(seed: int = 1, *, built: bool = True) -> Any:
    """Eight numbers to three."""
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((8,)), *layers] if built else layers)


def samples(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Inputs and targets of network()."""
    random = numpy.random.default_rng(seed)
    inputs = random.standard_normal((count, 8)).astype(numpy.float32)
    return inputs, random.standard_normal((count, 3)).astype(numpy.float32)


def share(array: Array, batch: int, rank: int, size: int) -> Array:
    """Of every batch those samples that this rank trains on when all ranks together train on the whole batch."""
    batches = [array[begin : begin + batch][rank::size] for begin in range(0, len(array), batch)]
    return numpy.concatenate(batches)


def weights(model: Any) -> Array:
    """All trainable values in one row."""
    return numpy.concatenate([variable.numpy().ravel() for variable in model.trainable_variables])
