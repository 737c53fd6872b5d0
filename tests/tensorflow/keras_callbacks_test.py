"""gyre.keras.callbacks, and what the ranks agree on during fit(): the same start, the same end of an epoch, and that
every trainable variable was exchanged."""

import math
import os
import signal
import warnings
from typing import Any

import gyre.keras as hvd
import keras
import numpy
import tensorflow as tf
from expectations import fails_with
from gyre.errors import InvalidArgumentError, MismatchError, PeerLeftError, PeerLostError, UnsupportedError
from keras_fits import BROADCAST, check_same_on_all_ranks, compiled, fit
from keras_models import network, samples, weights


def ranks_start_alike() -> None:
    hvd.init()

    class Start(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            if batch == 0:
                self.rows = hvd.allgather(weights(self.model)[None])

    root = hvd.size() - 1
    model, start = compiled(network(seed=hvd.rank())), Start()
    wanted = hvd.broadcast(weights(model), root)
    fit(model, BROADCAST(root), start)
    assert all(numpy.array_equal(row, wanted) for row in start.rows)
    check_same_on_all_ranks(model)
    # Keras builds a Sequential without Input when it sees the first batch, which is early enough.
    model = compiled(network(seed=hvd.rank(), built=False))
    fit(model, BROADCAST(0))
    check_same_on_all_ranks(model)

    # Where only the first batch builds the model, as in Keras's first versions, all is sent after it, as in Horovod.
    class Late(keras.Sequential):
        def _symbolic_build(self, **_: Any) -> None:
            assert not self.built

    keras.utils.set_random_seed(hvd.rank())
    model = compiled(Late([keras.layers.Dense(3)]))
    fit(model, BROADCAST(0))
    check_same_on_all_ranks(model)
    # Dropout masks differ: the states of the random generators are not sent.
    keras.utils.set_random_seed(hvd.rank())
    model = compiled(keras.Sequential([keras.Input((8,)), keras.layers.Dropout(0.5), keras.layers.Dense(3)]))
    fit(model, BROADCAST(0))
    check_same_on_all_ranks(model)
    seeds = [v.numpy() for v in model.variables if "seed_generator_state" in v.path]
    rows = hvd.allgather(seeds[0][None])
    assert not numpy.array_equal(rows[0], rows[1])


def test_all_ranks_begin_with_the_roots_variables(run_ranks) -> None:
    run_ranks(2, ranks_start_alike)


def metrics_are_averaged() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    seen = []

    class Own(keras.callbacks.Callback):
        def __init__(self, after: bool) -> None:
            super().__init__()
            self.after = after

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            if not self.after:
                logs["rank"] = rank
                logs["word"] = "kept"
            seen.append(dict(logs))

    model = compiled(network(), metrics=["mae"])
    inputs, targets = samples(8, seed=rank)
    history = fit(
        model,
        BROADCAST(0),
        Own(False),
        hvd.callbacks.MetricAverageCallback(),
        Own(True),
        validation_data=(inputs, targets),
    ).history
    before, after = seen
    assert set(after) == {"loss", "mae", "val_loss", "val_mae", "rank", "word"}
    assert after["rank"] == (size - 1) / 2
    assert after["word"] == "kept"
    for name in ("loss", "mae", "val_loss", "val_mae"):
        rows = hvd.allgather(numpy.array([before[name]]))
        assert math.isclose(after[name], rows.mean(), rel_tol=1e-12)
        assert history[name] == [after[name]]
    # A metric that only one rank has would never meet its like.
    options = {"validation_data": (inputs, targets)} if rank == 0 else {}
    told = fails_with(MismatchError, lambda: fit(model, BROADCAST(0), hvd.callbacks.MetricAverageCallback(), **options))
    assert "val_loss" in told


def test_metrics_of_an_epoch_are_averages(run_ranks) -> None:
    run_ranks(2, metrics_are_averaged)


class Rates(keras.callbacks.Callback):
    """The learning rate of every batch."""

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        self.rates: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.rates.append(float(self.model.optimizer.learning_rate.numpy()))


def rates_follow_the_formula() -> None:
    hvd.init()
    size, rates = hvd.size(), Rates()
    batches, epochs, warm = 4, 4, 3
    model = compiled(network())
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=warm, verbose=1)
    history = fit(model, BROADCAST(0), warmup, rates, epochs=epochs).history
    wanted = [
        0.4 / size * (min((index + 1) / batches, warm) * (size - 1) / warm + 1) for index in range(batches * epochs)
    ]
    numpy.testing.assert_allclose(rates.rates, wanted, rtol=1e-6)
    numpy.testing.assert_allclose(history["lr"], wanted[batches - 1 :: batches], rtol=1e-6)

    schedule = hvd.callbacks.LearningRateScheduleCallback
    for callback, formula in (
        (schedule(0.2, 0.5, start_epoch=1, end_epoch=3), lambda e, _: 0.2 * 0.5 ** (min(e, 2) - 1) if e >= 1 else 0.05),
        (schedule(0.2, lambda epoch: 1 / (1 + epoch)), lambda e, _: 0.2 / (1 + e)),
        (schedule(0.2, lambda epoch: 1 / (1 + epoch), staircase=False), lambda e, b: 0.2 / (1 + e + b / batches)),
    ):
        model = compiled(network())
        fit(model, BROADCAST(0), callback, rates, epochs=epochs)
        wanted = [formula(index // batches, index % batches) for index in range(batches * epochs)]
        numpy.testing.assert_allclose(rates.rates, wanted, rtol=1e-6)


def test_learning_rates_warm_up_and_follow_schedules(run_ranks) -> None:
    outcomes = run_ranks(2, rates_follow_the_formula)
    assert "Epoch 3: finished gradual learning rate warmup to 0.4." in outcomes[0].output


def momentum_is_corrected() -> None:
    """Velocity after a change of rate r to r': m·(r'/r)·v - r'·g, and m·v - r'·g without the correction."""
    hvd.init()
    for correct in (True, False):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.5))
        model = compiled(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)]), optimizer)
        model.layers[0].kernel.assign([[0.0]])
        halve = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5**epoch, momentum_correction=correct)
        one = numpy.ones((1, 1), "float32")
        model.fit(one, one, epochs=2, verbose=0, callbacks=[BROADCAST(0), halve])
        first = -0.1 * -2.0  # The gradient of (w - 1)² at 0.
        gradient = 2 * (first - 1)
        second = 0.5 * (0.5 if correct else 1.0) * first - 0.05 * gradient
        numpy.testing.assert_allclose(model.layers[0].kernel.numpy(), [[first + second]], rtol=1e-6)


def test_a_changed_rate_corrects_the_momentum_once(run_ranks) -> None:
    run_ranks(2, momentum_is_corrected)


def ranks_have_unequal_batches() -> None:
    hvd.init()
    rank = hvd.rank()
    for counts in ([16, 24, 8], [4, 12, 12]):
        model = compiled(network(seed=rank))
        count = counts[rank]
        history = fit(
            model,
            BROADCAST(0),
            hvd.callbacks.MetricAverageCallback(),
            count=count,
            epochs=3,
            validation_data=samples(4),
        ).history
        assert int(model.optimizer.iterations.numpy()) == 3 * max(counts[: hvd.size()]) // 4
        check_same_on_all_ranks(model)
        assert len(history["val_loss"]) == 3
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), backward_passes_per_step=2)
    model = compiled(network(seed=rank), optimizer)
    fit(model, BROADCAST(0), count=[16, 28, 12][rank], epochs=3)
    check_same_on_all_ranks(model)
    keras.utils.set_random_seed(rank)
    layers = [keras.layers.Embedding(9, 3), keras.layers.Flatten(), keras.layers.Dense(3)]
    model = compiled(keras.Sequential([keras.Input((2,), dtype="int32"), *layers]))
    count = [8, 16, 12][rank]
    words = numpy.random.default_rng(rank).integers(0, 9, (count, 2))
    model.fit(words, samples(count)[1], batch_size=4, epochs=2, verbose=0, callbacks=[BROADCAST(0)])
    check_same_on_all_ranks(model)
    # One that has none at all in the first epoch has nothing traced, and must join all the same.
    model = compiled(network(seed=rank))
    inputs, targets = samples(8)

    def batches() -> Any:
        for begin in range(0, 0 if rank == 0 else 8, 4):
            yield inputs[begin : begin + 4], targets[begin : begin + 4]

    signature = (tf.TensorSpec((None, 8)), tf.TensorSpec((None, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.optimizer.build(model.trainable_variables)
        history = model.fit(
            tf.data.Dataset.from_generator(batches, output_signature=signature),
            verbose=0,
            callbacks=[BROADCAST(0), hvd.callbacks.MetricAverageCallback()],
            validation_data=samples(4),
        ).history
    check_same_on_all_ranks(model)
    # Its metrics are those of the others, by which its callbacks decide as theirs do.
    assert set(history) == {"loss", "val_loss"}
    rows = hvd.allgather(numpy.array([[history["loss"][0], history["val_loss"][0]]]))
    assert (rows == rows[0]).all()
    assert rows[0, 0] > 0
    # Keras also counts the call that finds the end of the data.
    assert int(model.optimizer.iterations.numpy()) == 3
    # Several batches in one call of TensorFlow, in which ranks do not meet at their callbacks.
    model = compiled(network(seed=rank), steps_per_execution=3)
    fit(model, BROADCAST(0), hvd.callbacks.MetricAverageCallback(), count=[8, 12, 28][rank], epochs=2)
    check_same_on_all_ranks(model)


def test_ranks_with_fewer_batches_wait_for_the_others(run_ranks) -> None:
    for size in (2, 3):
        run_ranks(size, ranks_have_unequal_batches)


def unreduced_training_is_found() -> None:
    hvd.init()
    model = compiled(network(), keras.optimizers.SGD(0.1))
    told = fails_with(UnsupportedError, lambda: fit(model, BROADCAST(0)))
    assert "dense/kernel" in told or "kernel" in told
    assert "SGD, is not a DistributedOptimizer" in told
    assert "(4 of 4 trainable variables)" in told

    class TwoOptimizers(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            inputs, targets = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=targets, y_pred=self(inputs, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients[:3], self.trainable_variables[:3])
            self.other.apply(gradients[3:], self.trainable_variables[3:])
            return {"loss": loss}

    def two(other: Any) -> Any:
        keras.utils.set_random_seed(1)
        model = TwoOptimizers([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(3)])
        model.other = other
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        optimizer.build(model.trainable_variables[:3])
        other.build(model.trainable_variables[3:])
        return compiled(model, optimizer)

    told = fails_with(UnsupportedError, lambda: fit(two(keras.optimizers.SGD(0.1)), BROADCAST(0)))
    assert "/bias" in told
    assert "(1 of 4 trainable variables)" in told
    assert "wrap the other optimizer too" in told
    model = two(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    fit(model, BROADCAST(0))
    rows = hvd.allgather(weights(model)[None])
    assert numpy.array_equal(rows[0], rows[1])

    class Idle(keras.Sequential):
        """With a trainable variable that its output does not depend on: nothing changes it, so all is well."""

        def build(self, shape: Any = None) -> None:
            super().build(shape)
            self.idle = self.add_weight(shape=(2,), name="idle")

    model = Idle([keras.Input((8,)), keras.layers.Dense(3)])
    if not any(variable.name == "idle" for variable in model.trainable_variables):
        model.build()
    assert any(variable.name == "idle" for variable in model.trainable_variables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of Keras, about the missing gradient.
        fit(compiled(model), BROADCAST(0))

    class Meddling(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.model.trainable_variables[2].assign_add(
                keras.ops.ones_like(self.model.trainable_variables[2]) * hvd.rank()
            )

    told = fails_with(MismatchError, lambda: fit(compiled(network()), BROADCAST(0), Meddling()))
    assert "on rank 1 differs from rank 0, though all ranks began with the same values" in told
    # Without the broadcast callback the ranks may have begun with other values: Gyre cannot know that this is an error.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(compiled(network(seed=hvd.rank())), hvd.callbacks.MetricAverageCallback())
    words = [str(one.message) for one in caught if "differs from rank 0" in str(one.message)]
    assert len(words) == (1 if hvd.rank() == 0 else 0)
    assert all("BroadcastGlobalVariablesCallback(0)" in one for one in words)


def test_a_variable_that_was_not_exchanged_ends_the_first_batch(run_ranks) -> None:
    run_ranks(2, unreduced_training_is_found)


def checkpoints_need_a_path() -> None:
    hvd.init()
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    assert best.save_best_only
    assert "filepath" in fails_with(InvalidArgumentError, lambda: fit(compiled(network()), best))
    best.filepath = f"best.{hvd.rank()}.keras"
    fit(compiled(network()), best)
    assert keras.models.load_model(best.filepath) is not None


def test_the_best_model_is_saved_where_the_script_says(run_ranks) -> None:
    run_ranks(1, checkpoints_need_a_path)


def ranks_stop_together() -> None:
    """EarlyStopping before MetricAverageCallback, so that only one rank's metric ends its patience."""
    hvd.init()

    class Own(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["own"] = float(epoch if hvd.rank() == 1 and epoch > 0 else -epoch)

    stop = keras.callbacks.EarlyStopping("own", patience=1, mode="min")
    model = compiled(network())
    history = fit(model, BROADCAST(0), Own(), stop, hvd.callbacks.MetricAverageCallback(), epochs=5)
    assert len(history.epoch) == 2
    check_same_on_all_ranks(model)
    # The next fit() trains again, and one that stops within an epoch waits for the others at its end.

    class Leave(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            if hvd.rank() == 0 and batch == 1:
                self.model.stop_training = True

    assert len(fit(model, BROADCAST(0), epochs=2).epoch) == 2
    assert len(fit(model, BROADCAST(0), Leave(), epochs=3).epoch) == 1
    check_same_on_all_ranks(model)


def test_all_ranks_stop_after_the_epoch_after_which_one_stops(run_ranks) -> None:
    run_ranks(2, ranks_stop_together)


def a_rank_has_fewer_epochs() -> None:
    hvd.init()
    model = compiled(network())
    if hvd.rank() == 1:
        fit(model, BROADCAST(0), epochs=1)
        return
    assert "rank 1" in fails_with(PeerLeftError, lambda: fit(model, BROADCAST(0), epochs=3))


def test_a_rank_that_leaves_fit_early_is_named(run_ranks) -> None:
    run_ranks(2, a_rank_has_fewer_epochs)


def a_rank_dies_in_its_third_batch() -> None:
    hvd.init()

    class Death(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            if batch == 2 and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    told = fails_with(PeerLostError, lambda: fit(compiled(network()), BROADCAST(0), Death()))
    assert "rank 1" in told


def test_a_dead_rank_ends_fit_with_gyres_own_error(run_ranks) -> None:
    outcomes = run_ranks(2, a_rank_dies_in_its_third_batch, check=False)
    assert outcomes[0].code == 0, outcomes[0].output
