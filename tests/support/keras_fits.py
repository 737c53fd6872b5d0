"""fit() of small Keras models under gyre.keras, on every rank's own samples."""

from __future__ import annotations

from typing import Any

import gyre.keras as hvd
import keras
import numpy
from keras_models import samples, weights

BROADCAST = hvd.callbacks.BroadcastGlobalVariablesCallback


def compiled(model: Any, optimizer: Any | None = None, **options: Any) -> Any:
    model.compile(optimizer or hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)), "mse", **options)
    return model


def check_same_on_all_ranks(model: Any) -> None:
    optimizer = [variable.numpy().ravel() for variable in model.optimizer.variables]
    rows = hvd.allgather(numpy.concatenate([weights(model), *optimizer]).astype("float32")[None])
    assert all(row.tobytes() == rows[0].tobytes() for row in rows), "the ranks' bits differ"


def fit(model: Any, *callbacks: Any, count: int = 16, **options: Any) -> Any:
    inputs, targets = samples(count, seed=hvd.rank())
    return model.fit(inputs, targets, batch_size=4, verbose=0, callbacks=list(callbacks), **options)
