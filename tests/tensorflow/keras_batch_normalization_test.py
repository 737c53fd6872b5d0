"""gyre.keras.SyncBatchNormalization: ranks that share a batch in unequal parts normalize as one rank with the whole."""

from pathlib import Path
from typing import Any

import gyre.keras as hvd
import keras
import numpy
import tensorflow as tf
from expectations import fails_with
from gyre.errors import InvalidArgumentError
from keras_models import weights


def normalizing(kind: Any, **options: Any) -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Conv1D(3, 2), kind(**options), keras.layers.Flatten(), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((5, 2)), *layers])


def unequal_batches_are_one() -> None:
    hvd.init()
    rank = hvd.rank()
    random = numpy.random.default_rng(0)
    inputs = (random.standard_normal((6, 5, 2)) * [3, 1] + [100, -5]).astype("float32")
    whole, alone = normalizing(hvd.SyncBatchNormalization, fused=False), normalizing(keras.layers.BatchNormalization)
    own = inputs[:1] if rank == 0 else inputs[1:]
    for traced in (False, True):

        def losses(model: Any, values: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(values, training=True) ** 2)
            return tape.gradient(loss, model.trainable_variables)

        run = tf.function(losses) if traced else losses
        together = [hvd.allreduce(one, op=hvd.Sum) for one in run(whole, own)]
        for found, wanted in zip(together, run(alone, inputs), strict=True):
            numpy.testing.assert_allclose(found, wanted.numpy(), rtol=2e-3, atol=2e-3)
    for found, wanted in zip(whole.non_trainable_variables, alone.non_trainable_variables, strict=True):
        numpy.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)
    # Masked places do not count.
    layers = [hvd.SyncBatchNormalization(momentum=0.0), keras.layers.BatchNormalization(momentum=0.0)]
    mask = numpy.arange(30).reshape(6, 5) % 3 > 0
    layers[0](own, training=True, mask=mask[:1] if rank == 0 else mask[1:])
    layers[1](inputs, training=True, mask=mask)
    for found, wanted in zip(layers[0].non_trainable_variables, layers[1].non_trainable_variables, strict=True):
        numpy.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4)
    assert "fused=True" in fails_with(InvalidArgumentError, lambda: hvd.SyncBatchNormalization(fused=True))


def test_moments_are_over_all_ranks_values_whatever_their_batches(run_ranks) -> None:
    run_ranks(2, unequal_batches_are_one)


def fits_with_unequal_numbers_of_batches() -> None:
    hvd.init()
    random = numpy.random.default_rng(hvd.rank())
    count = 8 + 8 * hvd.rank()
    inputs, targets = random.standard_normal((count, 5, 2)), random.standard_normal((count, 2))
    model = normalizing(hvd.SyncBatchNormalization)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(inputs, targets, batch_size=4, epochs=2, verbose=0, callbacks=[start])
    assert int(model.optimizer.iterations.numpy()) == 8
    values = numpy.concatenate([weights(model), *(v.numpy().ravel() for v in model.layers[1].non_trainable_variables)])
    rows = hvd.allgather(values[None])
    assert numpy.array_equal(rows[0], rows[1])
    path = Path(f"model.{hvd.rank()}.keras")
    model.save(path)
    assert isinstance(hvd.load_model(path).layers[1], hvd.SyncBatchNormalization)


def test_ranks_with_fewer_batches_do_not_hold_up_the_others(run_ranks) -> None:
    run_ranks(2, fits_with_unequal_numbers_of_batches)
