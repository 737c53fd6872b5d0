"""Strategies of tf.distribute around gyre.keras: several replicas of a process would all use its one exchange, so they
are refused before the first step."""

from typing import Any

import gyre.keras as hvd
import gyre.tensorflow
import keras
import tensorflow as tf
from expectations import fails_with
from gyre.errors import UnsupportedError
from keras_models import network, samples, weights


def two_replicas_are_refused() -> None:
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    hvd.init()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    words = "MirroredStrategy of tf.distribute has 2 replicas here, and gyre.keras and gyre.tensorflow train one on"

    def refused(call: Any) -> None:
        told = fails_with(UnsupportedError, call)
        assert told.startswith(words)
        assert "gyre run -n 2" in told

    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    with strategy.scope():
        refused(lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
        model = network()
        model.compile(optimizer, "mse")
    before = weights(model)
    inputs, targets = samples(8)
    for callbacks in ([], [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]):
        refused(lambda callbacks=callbacks: model.fit(inputs, targets, verbose=0, callbacks=callbacks))
    assert (weights(model) == before).all()
    refused(lambda: strategy.run(lambda: gyre.tensorflow.allreduce(tf.ones(2))))
    # A strategy of one replica is in nobody's way.
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = network()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    model.fit(inputs, targets, verbose=0)


def test_strategies_with_several_replicas_are_refused(run_ranks) -> None:
    run_ranks(2, two_replicas_are_refused)
