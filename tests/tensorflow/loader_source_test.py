"""gyre.data.Loader feeds model.fit(), as docs/guide/from_keras.md shows, through gyre.keras.Batches and tf.data: each
rank its share, and every epoch another order."""

from pathlib import Path
from typing import Any

import gyre.keras as hvd
import keras
import numpy
import pytest
import tensorflow as tf
from loader_batches import (
    check_an_epoch_of_fit_is_one_of_the_loader,
    check_evaluation,
    check_misuse,
    check_passes_that_are_left,
    check_ranks_with_fewer_batches,
    check_set_epoch_and_looks,
    check_short_epochs,
    check_states,
)

from gyre.data import Loader, floats, write_tfrecords


def an_epoch_of_fit_is_one_of_the_loader() -> None:
    hvd.init()
    path = Path(f"numbers.{hvd.rank()}.tfrecord")
    write_tfrecords(path, ({"x": numpy.array([i], numpy.float32), "y": numpy.zeros(1, "float32")} for i in range(32)))
    loader = Loader(str(path), {"x": floats(1), "y": floats(1)}, batch_size=4, seed=3, output="numpy")
    seen: list[Any] = []

    def batches() -> Any:
        for batch in loader:
            seen.append((batch.epoch, batch["x"].ravel().tolist()))
            yield batch["x"], batch["y"]

    signature = (tf.TensorSpec((None, 1)), tf.TensorSpec((None, 1)))
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-4)), "mse")
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    # From the second epoch on Keras knows how many batches there are, and makes iterators that it does not use.
    epochs = range(4)
    model.fit(data, epochs=len(epochs), verbose=0, callbacks=[start])
    assert [epoch for epoch, _ in seen] == [epoch for epoch in epochs for _ in range(len(loader))]
    orders = [[number for epoch, batch in seen if epoch == wanted for number in batch] for wanted in epochs]
    assert orders[0] != orders[1]
    rows = hvd.allgather(numpy.array(orders))
    for epoch in epochs:
        both = numpy.concatenate([rows[len(epochs) * rank + epoch] for rank in range(2)])
        assert sorted(both.tolist()) == list(range(32))


def test_fit_reads_from_a_loader(run_ranks) -> None:
    run_ranks(2, an_epoch_of_fit_is_one_of_the_loader)


def train_on_batches_of_a_loader() -> None:
    check_an_epoch_of_fit_is_one_of_the_loader()


def train_on_unequal_loaders() -> None:
    check_ranks_with_fewer_batches()


def test_an_epoch_of_fit_is_one_of_the_loader(run_ranks) -> None:
    run_ranks(2, train_on_batches_of_a_loader)


def test_ranks_may_have_loaders_with_fewer_batches(run_ranks) -> None:
    run_ranks(2, train_on_unequal_loaders)


@pytest.mark.parametrize(
    "check",
    [check_short_epochs, check_states, check_passes_that_are_left, check_set_epoch_and_looks, check_evaluation],
)
def test_passes_over_batches(tmp_path, check) -> None:
    check(tmp_path)


def test_misuse_of_batches_is_refused(tmp_path) -> None:
    check_misuse(tmp_path)
