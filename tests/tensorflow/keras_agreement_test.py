"""What the ranks of a fit() agree on beyond its first batch: options, rates and variables that drift apart, ranks that
begin late, callbacks that only one rank has, and loops that call callbacks themselves."""

import warnings
from typing import Any

import gyre.keras as hvd
import keras
import tensorflow as tf
from expectations import fails_with
from gyre.errors import MismatchError
from keras_fits import BROADCAST, check_same_on_all_ranks, compiled, fit
from keras_models import network, samples


def a_rank_begins_in_the_second_epoch() -> None:
    hvd.init()
    now = {"epoch": 0}

    class Epoch(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            now["epoch"] = epoch

    def batches() -> Any:
        for seed in range(now["epoch"] + hvd.rank()):
            yield samples(4, seed=seed)

    signature = (tf.TensorSpec((None, 8)), tf.TensorSpec((None, 3)))
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    model = compiled(network(seed=hvd.rank()))
    model.optimizer.build(model.trainable_variables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of Keras, about an epoch without data.
        model.fit(data, epochs=3, verbose=0, callbacks=[Epoch(), BROADCAST(0), hvd.callbacks.MetricAverageCallback()])
    check_same_on_all_ranks(model)


def test_a_rank_without_a_batch_in_the_first_epoch_takes_part_in_the_next(run_ranks) -> None:
    run_ranks(2, a_rank_begins_in_the_second_epoch)


def warnings_of(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if "differs from rank 0" in str(one.message)]


def later_differences_are_found() -> None:
    hvd.init()
    rank = hvd.rank()
    # No callback of Gyre's at all.
    words = warnings_of(lambda: fit(compiled(network(seed=rank))))
    assert len(words) == (1 if rank == 0 else 0), words
    assert all("on rank 1 differs from rank 0: the ranks do not begin with the same values" in one for one in words)
    assert warnings_of(lambda: fit(compiled(network()))) == []
    # A callback that decides by the metrics of its rank alone.

    class Own(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["own"] = float(epoch * rank)

    plateau = keras.callbacks.ReduceLROnPlateau("own", factor=0.5, patience=1, mode="max")
    told = fails_with(MismatchError, lambda: fit(compiled(network()), BROADCAST(0), Own(), plateau, epochs=5))
    assert "the learning rate is 0.025 on rank 0 and 0.05 on rank 1" in told
    assert "put MetricAverageCallback before" in told
    averaged = [BROADCAST(0), Own(), hvd.callbacks.MetricAverageCallback(), plateau]
    fit(compiled(network()), *averaged, epochs=5)
    # One that changes the variables after the last batch.
    best = keras.callbacks.EarlyStopping("own", patience=1, mode="min", restore_best_weights=True)

    class Turned(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["own"] = float(epoch if rank else -epoch)

    words = warnings_of(lambda: fit(compiled(network()), BROADCAST(0), Turned(), best, epochs=5))
    assert len(words) == (1 if rank == 0 else 0), words
    assert all("at the end of fit()" in one and "restore_best_weights" in one for one in words)


def test_a_difference_that_comes_later_is_found(run_ranks) -> None:
    run_ranks(2, later_differences_are_found)


def passes_are_agreed_on() -> None:
    hvd.init()

    def wrapped(passes: int) -> Any:
        return hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), backward_passes_per_step=passes)

    # The first batch exchanges nothing, and is not the one after which the variables are compared.
    for eager in (False, True):
        model = compiled(network(seed=hvd.rank()), wrapped(3), run_eagerly=eager)
        fit(model, BROADCAST(0), count=20, epochs=2)
        check_same_on_all_ranks(model)

        class Meddling(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
                if batch == 2:
                    self.model.optimizer.learning_rate = 0.1 + hvd.rank()

        model = compiled(network(), wrapped(3), run_eagerly=eager)
        told = fails_with(MismatchError, lambda model=model: fit(model, BROADCAST(0), Meddling(), count=20))
        assert "on rank 1 differs from rank 0, though all ranks began" in told
    told = fails_with(MismatchError, lambda: fit(compiled(network(), wrapped(1 + hvd.rank())), BROADCAST(0)))
    assert "backward_passes_per_step=1" in told
    assert "backward_passes_per_step=2" in told


def test_ranks_agree_on_backward_passes(run_ranks) -> None:
    run_ranks(2, passes_are_agreed_on)


def a_loop_calls_the_callbacks() -> None:
    """Two models, one of which is trained as a part of another, as in a GAN."""
    hvd.init()
    model = compiled(network(seed=hvd.rank()))
    inputs = keras.Input((8,))
    whole = compiled(keras.Model(inputs, keras.layers.Dense(3)(model(inputs))))
    lists, seen = [], []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            seen.append(logs["loss"])

    for one in (model, whole):
        callbacks = keras.callbacks.CallbackList([BROADCAST(0), hvd.callbacks.MetricAverageCallback(), Look()])
        callbacks.set_model(one)
        lists.append(callbacks)
    for callbacks in lists:
        callbacks.on_train_begin()
    for epoch in range(2):
        for callbacks in lists:
            callbacks.on_epoch_begin(epoch)
        for batch in range(2):
            for callbacks in lists:
                callbacks.on_train_batch_begin(batch)
            whole.train_on_batch(*samples(4, seed=10 * hvd.rank() + batch))
            for callbacks in lists:
                callbacks.on_train_batch_end(batch)
        for callbacks in lists:
            callbacks.on_epoch_end(epoch, {"loss": float(hvd.rank())})
    assert seen == [0.5] * 4
    check_same_on_all_ranks(whole)


def test_callbacks_work_in_a_loop_of_the_programs_own(run_ranks) -> None:
    run_ranks(2, a_loop_calls_the_callbacks)


def one_rank_has_the_callbacks() -> None:
    hvd.init()
    callbacks = [BROADCAST(0), hvd.callbacks.MetricAverageCallback()] if hvd.rank() == 0 else []
    told = fails_with(MismatchError, lambda: fit(compiled(network()), *callbacks))
    assert told.startswith("deadlock: rank 0 waits for ")


def one_rank_averages_metrics() -> None:
    """After batches, which threads of TensorFlow have exchanged."""
    hvd.init()
    callbacks = [BROADCAST(0), *([hvd.callbacks.MetricAverageCallback()] if hvd.rank() == 0 else [])]
    told = fails_with(MismatchError, lambda: fit(compiled(network()), *callbacks))
    assert told.startswith("deadlock: rank 0 waits for ")


def test_callbacks_on_one_rank_only_end_the_job(run_ranks) -> None:
    for body in (one_rank_has_the_callbacks, one_rank_averages_metrics):
        run_ranks(2, body, environment={"GYRE_DEADLOCK_SECONDS": "1"})


def another_optimizer_is_never_used() -> None:
    """As an earlier cell of a notebook leaves one."""
    hvd.init()
    unused = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model = compiled(network(seed=hvd.rank()))
    fit(model, BROADCAST(0), count=[8, 16][hvd.rank()], epochs=2)
    check_same_on_all_ranks(model)
    assert not unused.built


def test_an_optimizer_that_is_not_used_is_in_nobodys_way(run_ranks) -> None:
    run_ranks(2, another_optimizer_is_never_used)
