"""gyre.keras where Keras computes with torch: what tests/tensorflow checks on TensorFlow."""

import keras_on_torch  # noqa: F401  Before Keras.

import gyre.keras as hvd  # isort: skip
import keras  # isort: skip
import numpy
import pytest
import torch
from expectations import fails_with
from gyre.errors import UnsupportedError
from keras_models import network, samples, share
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

BATCH = 12


def weights(model):
    return numpy.concatenate([variable.numpy().ravel() for variable in model.trainable_variables])


def fit(model, optimizer, inputs, targets, batch, callbacks=()):
    model.compile(optimizer, keras.losses.MeanSquaredError())
    model.fit(inputs, targets, batch_size=batch, epochs=3, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model


def check_same_on_all_ranks(model) -> None:
    rows = hvd.allgather(weights(model)[None])
    assert all(row.tobytes() == rows[0].tobytes() for row in rows)


def ranks_train_as_one() -> None:
    hvd.init()
    assert keras.backend.backend() == "torch"
    rank, size = hvd.rank(), hvd.size()
    inputs, targets = samples(4 * BATCH)
    own = [share(array, BATCH, rank, size) for array in (inputs, targets)]
    for make in (lambda: keras.optimizers.SGD(0.1, momentum=0.9), lambda: keras.optimizers.Adam(0.01, clipnorm=0.1)):
        alone = fit(network(), make(), inputs, targets, BATCH)
        together = fit(network(), hvd.DistributedOptimizer(make()), *own, BATCH // size)
        check_same_on_all_ranks(together)
        numpy.testing.assert_allclose(weights(together), weights(alone), rtol=0, atol=1e-5)
    passes = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    together = fit(network(), passes, *own, BATCH // size // 2)
    alone = fit(network(), keras.optimizers.SGD(0.1), inputs, targets, BATCH)
    check_same_on_all_ranks(together)
    numpy.testing.assert_allclose(weights(together), weights(alone), rtol=0, atol=1e-5)
    path = f"model.{rank}.keras"
    together.save(path)
    assert type(keras.models.load_model(path).optimizer).__name__ == "SGD"
    assert int(hvd.load_model(path).optimizer.iterations.numpy()) == int(passes.iterations.numpy())


def test_ranks_train_as_one_rank_with_the_whole_batch(run_ranks) -> None:
    run_ranks(2, ranks_train_as_one)


def fit_with_callbacks() -> None:
    hvd.init()
    rank = hvd.rank()
    inputs, targets = samples(16 + 8 * rank, seed=rank)
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2),
    ]
    model = network(seed=rank)
    fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), inputs, targets, 4, callbacks)
    check_same_on_all_ranks(model)
    assert int(model.optimizer.iterations.numpy()) == 3 * 6
    plain = network()
    told = fails_with(
        UnsupportedError, lambda: fit(plain, keras.optimizers.SGD(0.1), inputs, targets, 4, callbacks[:1])
    )
    assert "is not a DistributedOptimizer" in told


def test_callbacks_and_unequal_batches(run_ranks) -> None:
    run_ranks(2, fit_with_callbacks)


def fit_logs_its_metrics() -> None:
    logged: list[tuple[dict[str, float], int]] = []
    hvd.callbacks.log = lambda values, step: logged.append((values, step))
    model = network()
    model.compile(keras.optimizers.SGD(0.1), keras.losses.MeanSquaredError())
    inputs, targets = samples(4 * BATCH)
    callback = hvd.callbacks.LogMetricsCallback(every=2)
    history = model.fit(
        inputs,
        targets,
        batch_size=BATCH,
        epochs=2,
        verbose=0,
        callbacks=[callback],
        validation_data=(inputs, targets),
    )
    assert [step for _, step in logged] == [1, 3, 4, 5, 7, 8]
    assert [sorted(values) for values, _ in logged[:3]] == [["loss"], ["loss"], ["epoch", "epoch_loss", "val_loss"]]
    of_epoch = {name: values[1] for name, values in history.history.items()}
    assert logged[-1][0] == {"epoch": 1.0, "epoch_loss": of_epoch["loss"], "val_loss": of_epoch["val_loss"]}


def test_the_callback_logs_every_nth_batch_each_epoch_and_the_validation(run_ranks) -> None:
    run_ranks(1, fit_logs_its_metrics)


def a_sparse_gradient_is_refused() -> None:
    hvd.init()
    model = network()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    gradients = [torch.zeros(tuple(v.shape)).to_sparse() for v in model.trainable_variables]
    told = fails_with(UnsupportedError, lambda: optimizer.apply(gradients, model.trainable_variables))
    assert "sparse_as_dense=True" in told


def test_sparse_gradients_of_torch_are_refused(run_ranks) -> None:
    run_ranks(2, a_sparse_gradient_is_refused)


def another_back_end_is_refused() -> None:
    hvd.init()
    keras.backend.backend = lambda: "jax"
    optimizer = keras.optimizers.SGD(0.1)
    plain = type(optimizer)
    told = fails_with(UnsupportedError, lambda: hvd.DistributedOptimizer(optimizer))
    assert "tensorflow and torch, not with 'jax'; set KERAS_BACKEND" in told
    assert type(optimizer) is plain, "left as something that is called distributed and reduces nothing"


def test_other_back_ends_are_refused(run_ranks) -> None:
    run_ranks(1, another_back_end_is_refused)


def batches_are_normalized_together() -> None:
    hvd.init()
    inputs = numpy.random.default_rng(0).standard_normal((6, 4)).astype("float32")
    own = inputs[:1] if hvd.rank() == 0 else inputs[1:]
    layers = [hvd.SyncBatchNormalization(), keras.layers.BatchNormalization()]
    values = [torch.tensor(own, requires_grad=True), torch.tensor(inputs, requires_grad=True)]
    for layer, value in zip(layers, values, strict=True):
        ((layer(value, training=True) + 0.1 * value) ** 4).sum().backward()
    whole = values[1].grad[:1] if hvd.rank() == 0 else values[1].grad[1:]
    numpy.testing.assert_allclose(values[0].grad, whole, rtol=1e-4, atol=1e-4)
    for found, wanted in zip(layers[0].non_trainable_variables, layers[1].non_trainable_variables, strict=True):
        numpy.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)


def test_moments_are_over_all_ranks_values(run_ranks) -> None:
    run_ranks(2, batches_are_normalized_together)


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
