"""Two ranks that train Keras's CIFAR-10 network, each on half of every batch, end with the same bits, and with what one
rank that has the whole batches ends with."""

from typing import Any

import gyre.keras as hvd
import keras
import numpy
from keras_models import share, weights

BATCH, BATCHES, EPOCHS = 8, 3, 2


def network(dropout: float) -> Any:
    """Of examples/keras_cifar10.py; with `dropout` times its dropout."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            *(layers.Conv2D(32, 3, padding="same", activation="relu"), layers.Conv2D(32, 3, activation="relu")),
            *(layers.MaxPooling2D(), layers.Dropout(0.25 * dropout)),
            *(layers.Conv2D(64, 3, padding="same", activation="relu"), layers.Conv2D(64, 3, activation="relu")),
            *(layers.MaxPooling2D(), layers.Dropout(0.25 * dropout)),
            *(layers.Flatten(), layers.Dense(512, activation="relu"), layers.Dropout(0.5 * dropout)),
            layers.Dense(10, activation="softmax"),
        ]
    )


def trained(model: Any, optimizer: Any, data: list[Any], batch: int, *callbacks: Any) -> Any:
    model.compile(loss="categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    model.fit(*data, batch_size=batch, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=list(callbacks))
    return weights(model)


def halves_train_as_the_whole() -> None:
    hvd.init()
    random = numpy.random.default_rng(3)
    labels = random.integers(0, 10, BATCH * BATCHES)
    images = (random.random((len(labels), 32, 32, 3)) + labels[:, None, None, None] / 10).astype(numpy.float32) / 2
    whole = [images, keras.utils.to_categorical(labels, 10)]
    half = [share(array, BATCH, hvd.rank(), hvd.size()) for array in whole]
    for dropout in (0.0, 1.0):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.RMSprop(learning_rate=1e-4))
        begin = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        own = trained(network(dropout), optimizer, half, BATCH // hvd.size(), begin)
        rows = hvd.allgather(own[None])
        assert rows[0].tobytes() == rows[1].tobytes(), "the ranks' bits differ"
        if dropout == 0.0:
            alone = trained(network(dropout), keras.optimizers.RMSprop(learning_rate=1e-4), whole, BATCH)
            assert numpy.abs(alone - weights(network(dropout))).max() > 1e-4, "nothing was trained"
            numpy.testing.assert_allclose(own, alone, rtol=0, atol=1e-5)


def test_halves_of_the_batches_train_as_the_whole_batches(run_ranks) -> None:
    run_ranks(2, halves_train_as_the_whole)
