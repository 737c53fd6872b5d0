"""gyre.keras.DistributedOptimizer: ranks that share each batch train as one rank with the whole batch, in every form of
the exchange. Each job runs many checks, because starting one costs most."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gyre.keras as hvd
import keras
import numpy
import pytest
import tensorflow as tf
from expectations import fails_with
from gyre.errors import InvalidArgumentError, MismatchError, UnsupportedError
from keras_models import network, samples, share, weights

BATCH = 12
SIZES = [1, 2, 3]


def check_same_on_all_ranks(model: Any) -> None:
    rows = hvd.allgather(weights(model)[None])
    assert all(row.tobytes() == rows[0].tobytes() for row in rows), "the ranks' bits differ"


def fit(model: Any, optimizer: Any, inputs: Any, targets: Any, batch: int, **options: Any) -> Any:
    model.compile(optimizer, keras.losses.MeanSquaredError(), run_eagerly=options.pop("run_eagerly", False))
    model.fit(inputs, targets, batch_size=batch, epochs=3, shuffle=False, verbose=0, **options)
    return model


def check_trains_as_one(
    make_optimizer: Callable[[], Any], wrap: Callable[[Any], Any] = hvd.DistributedOptimizer, **options: Any
) -> None:
    rank, size = hvd.rank(), hvd.size()
    inputs, targets = samples(4 * BATCH)
    alone = fit(network(), make_optimizer(), inputs, targets, BATCH)
    own = [share(array, BATCH, rank, size) for array in (inputs, targets)]
    together = fit(network(), wrap(make_optimizer()), *own, BATCH // size, **options)
    check_same_on_all_ranks(together)
    numpy.testing.assert_allclose(weights(together), weights(alone), rtol=0, atol=1e-5)


def every_optimizer_trains_as_one_rank() -> None:
    hvd.init()
    makers: list[Callable[[], Any]] = [
        lambda: keras.optimizers.SGD(0.1),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, global_clipnorm=0.5),
        lambda: keras.optimizers.Adam(0.01, weight_decay=0.01),
        lambda: keras.optimizers.RMSprop(0.01, momentum=0.5),
    ]
    for make in makers:
        check_trains_as_one(make)
    check_trains_as_one(makers[0], run_eagerly=True)


@pytest.mark.parametrize("size", SIZES)
def test_ranks_train_as_one_rank_with_the_whole_batch(run_ranks, size: int) -> None:
    run_ranks(size, every_optimizer_trains_as_one_rank)


def every_option_gives_the_same_average() -> None:
    hvd.init()

    class Halves(hvd.Compressor):
        """Travels as float64, halved."""

        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return tf.cast(tensor, tf.float64) / 2, tensor.dtype

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return tf.cast(tensor * 2, ctx)

    def sgd() -> Any:
        return keras.optimizers.SGD(0.1, momentum=0.9)

    for options in (
        {"gradient_predivide_factor": 4.0},
        {"compression": hvd.Compression.fp16},  # Between ranks of one host nothing is rounded.
        {"compression": hvd.Compression.bf16},
        {"compression": Halves},
        {"groups": 2},
        {"num_groups": 100},
    ):
        check_trains_as_one(sgd, lambda optimizer, options=options: hvd.DistributedOptimizer(optimizer, **options))

    size = hvd.size()
    check_trains_as_one(
        lambda: keras.optimizers.SGD(0.1),
        lambda _: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 / size), op=hvd.Sum),
    )


def test_options_change_the_way_and_not_the_result(run_ranks) -> None:
    run_ranks(2, every_option_gives_the_same_average)


def an_embedding_trains_as_one() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    random = numpy.random.default_rng(0)
    words, targets = random.integers(0, 50, (BATCH * 3, 4)), random.standard_normal((BATCH * 3, 2)).astype("float32")

    def model() -> Any:
        keras.utils.set_random_seed(1)
        return keras.Sequential(
            [
                keras.Input((4,), dtype="int32"),
                keras.layers.Embedding(50, 5),
                keras.layers.Flatten(),
                keras.layers.Dense(2),
            ]
        )

    own = [share(array, BATCH, rank, size) for array in (words, targets)]
    # Keras's Adam squares the rows of one word one by one in a sparse gradient, and their sum in a dense one.
    for make, options in (
        (lambda: keras.optimizers.Adam(0.01), {}),
        (lambda: keras.optimizers.SGD(0.1, momentum=0.9), {}),
        (lambda: keras.optimizers.SGD(0.1, momentum=0.9), {"sparse_as_dense": True}),
    ):
        alone = fit(model(), make(), words, targets, BATCH)
        together = fit(model(), hvd.DistributedOptimizer(make(), **options), *own, BATCH // size)
        check_same_on_all_ranks(together)
        numpy.testing.assert_allclose(weights(together), weights(alone), rtol=0, atol=1e-5)
    summed = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 / size), op=hvd.Sum)
    together = fit(model(), summed, *own, BATCH // size)
    alone = fit(model(), keras.optimizers.SGD(0.1), words, targets, BATCH)
    numpy.testing.assert_allclose(weights(together), weights(alone), rtol=0, atol=1e-5)


def test_sparse_gradients_are_gathered(run_ranks) -> None:
    run_ranks(2, an_embedding_trains_as_one)


def passes_are_added_up() -> None:
    """Two passes over half a batch each are one over the whole batch, with half the rate as they are summed."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    inputs, targets = samples(4 * BATCH)
    alone = fit(network(), keras.optimizers.SGD(0.1, momentum=0.9), inputs, targets, BATCH)
    own = [share(array, BATCH, rank, size) for array in (inputs, targets)]
    for rate, average, eager in ((0.05, False, False), (0.1, True, False), (0.1, True, True)):
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(rate, momentum=0.9), backward_passes_per_step=2, average_aggregated_gradients=average
        )
        together = fit(network(), optimizer, *own, BATCH // size // 2, run_eagerly=eager)
        check_same_on_all_ranks(together)
        numpy.testing.assert_allclose(weights(together), weights(alone), rtol=0, atol=1e-5)
        assert int(optimizer.iterations.numpy()) == 3 * 4 * 2  # Every pass counts.
    # Keras's own accumulation averages its passes.
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2))
    together = fit(network(), optimizer, *own, BATCH // size // 2)
    numpy.testing.assert_allclose(weights(together), weights(alone), rtol=0, atol=1e-5)


def test_several_backward_passes_make_one_step(run_ranks) -> None:
    run_ranks(2, passes_are_added_up)


def local_gradients_stay_local() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    inputs, targets = samples(BATCH, seed=rank)
    for scale in (True, False):
        model, alone = network(), network()
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(0.1), local_layers=model.layers[-1], scale_local_gradients=scale
        )
        with tf.GradientTape(persistent=True) as tape:
            losses = [tf.reduce_mean((one(inputs) - targets) ** 2) for one in (model, alone)]
        optimizer.apply(tape.gradient(losses[0], model.trainable_variables), model.trainable_variables)
        own = tape.gradient(losses[1], alone.trainable_variables)
        for index, (variable, before, gradient) in enumerate(
            zip(model.trainable_variables, alone.trainable_variables, own, strict=True)
        ):
            wanted = hvd.allreduce(gradient) if index < 2 else gradient.numpy() / (size if scale else 1)
            numpy.testing.assert_allclose(variable.numpy(), before.numpy() - 0.1 * wanted, rtol=0, atol=1e-6)
    assert "built" in fails_with(
        InvalidArgumentError,
        lambda: hvd.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=keras.layers.Dense(2)),
    )


def test_registered_variables_are_trained_by_their_rank_alone(run_ranks) -> None:
    run_ranks(2, local_gradients_stay_local)


def process_sets_train_apart() -> None:
    hvd.init()
    even, odd = hvd.add_process_set([0, 2]), hvd.add_process_set([1])
    half = even if hvd.rank() % 2 == 0 else odd
    inputs, targets = samples(BATCH, seed=hvd.rank())
    model = fit(network(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), process_set=half), inputs, targets, 4)
    rows = hvd.allgather(weights(model)[None])
    assert numpy.array_equal(rows[0], rows[2])
    assert not numpy.array_equal(rows[0], rows[1])
    alone = fit(network(), keras.optimizers.SGD(0.1), inputs, targets, 4)
    if hvd.rank() == 1:
        assert numpy.array_equal(weights(model), weights(alone))
    outside = fit(network(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), process_set=odd), inputs, targets, 4)
    assert numpy.array_equal(weights(outside), weights(alone))


def test_a_process_set_trains_without_the_others(run_ranks) -> None:
    run_ranks(3, process_sets_train_apart)


def files_hold_the_plain_optimizer() -> None:
    hvd.init()
    inputs, targets = samples(BATCH, seed=hvd.rank())
    plain = keras.optimizers.Adam(0.01)
    optimizer = hvd.DistributedOptimizer(plain)
    assert optimizer is plain
    assert type(optimizer).__name__ == "Adam"
    assert isinstance(optimizer, keras.optimizers.Adam)
    model = fit(network(), optimizer, inputs, targets, 4)
    for suffix, steps in (("keras", 9), ("h5", 12)):
        path = Path(f"model.{hvd.rank()}.{suffix}")
        model.save(path)
        assert type(keras.models.load_model(path).optimizer) is keras.optimizers.Adam
        loaded = hvd.load_model(path)
        assert int(loaded.optimizer.iterations.numpy()) == int(optimizer.iterations.numpy()) == steps
        for one in (model, loaded):
            one.fit(inputs, targets, batch_size=4, shuffle=False, verbose=0)
        check_same_on_all_ranks(loaded)
        numpy.testing.assert_allclose(weights(loaded), weights(model), rtol=0, atol=1e-7)


def test_saved_models_load_with_and_without_gyre(run_ranks) -> None:
    run_ranks(2, files_hold_the_plain_optimizer)


def loss_scaling_decides_by_all_ranks() -> None:
    """One rank's infinite gradient makes all of them leave the step out."""
    hvd.init()
    model = network()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    variables = model.trainable_variables
    before = weights(model)
    bad = float("inf") if hvd.rank() == 1 else 1.0
    step = tf.function(lambda factor: optimizer.apply([v.value * 0 + factor for v in variables], variables))
    step(tf.constant(bad))
    assert numpy.array_equal(weights(model), before)
    step(tf.constant(1.0))
    assert not numpy.array_equal(weights(model), before)
    check_same_on_all_ranks(model)
    inside = keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    told = fails_with(UnsupportedError, lambda: inside.apply([v.value * 0 for v in variables], variables))
    assert "DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))" in told


def test_loss_scaling_leaves_out_a_step_on_all_ranks_or_none(run_ranks) -> None:
    run_ranks(2, loss_scaling_decides_by_all_ranks)


def what_cannot_run_says_so() -> None:
    hvd.init()
    inputs, targets = samples(BATCH)
    model = network()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", jit_compile=True)
    before = weights(model)
    assert "jit_compile=False" in fails_with(UnsupportedError, lambda: model.fit(inputs, targets, verbose=0))
    assert numpy.array_equal(weights(model), before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.config, "list_logical_devices", lambda _: ["GPU:0"])
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", jit_compile=False)
        assert "hide the GPUs" in fails_with(UnsupportedError, lambda: model.fit(inputs, targets, verbose=0))
        assert numpy.array_equal(weights(model), before)

    class Direct(keras.optimizers.SGD):
        def apply_gradients(self, grads_and_vars: Any) -> None:
            for gradient, variable in grads_and_vars:
                variable.assign_sub(0.1 * gradient)

    optimizer = hvd.DistributedOptimizer(Direct(0.1))
    pairs = [(variable.value * 0, variable) for variable in model.trainable_variables]
    assert "does not call apply()" in fails_with(UnsupportedError, lambda: optimizer.apply_gradients(pairs))

    def wrap(**options: Any) -> Callable[[], Any]:
        return lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options)

    assert "already" in fails_with(
        InvalidArgumentError, lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD()))
    )
    fails_with(InvalidArgumentError, lambda: hvd.DistributedOptimizer("sgd"))
    fails_with(InvalidArgumentError, wrap(op=hvd.Adasum))
    fails_with(InvalidArgumentError, wrap(op=hvd.Sum, gradient_predivide_factor=2.0))
    fails_with(InvalidArgumentError, wrap(gradient_predivide_factor=0.0))
    fails_with(InvalidArgumentError, wrap(backward_passes_per_step=0))
    fails_with(InvalidArgumentError, wrap(groups=-1))


def test_what_cannot_be_reduced_is_refused(run_ranks) -> None:
    run_ranks(2, what_cannot_run_says_so)


def values_are_exchanged() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    assert hvd.allreduce(rank + 1.0) == (size + 1) / 2
    assert hvd.allreduce([rank, 1], average=False).tolist() == [size * (size - 1) // 2, size]
    assert hvd.allreduce(numpy.float32(rank), op=hvd.Max, postscale_factor=2.0) == 2 * (size - 1)
    assert hvd.allgather(keras.ops.ones((1, 2)) * rank).tolist() == [[other] * 2 for other in range(size)]
    assert hvd.broadcast([rank], size - 1).tolist() == [size - 1]
    assert hvd.reducescatter(numpy.arange(size) * (rank + 1), op=hvd.Sum).tolist() == [rank * size * (size + 1) // 2]
    assert "BroadcastGlobalVariablesCallback" in fails_with(UnsupportedError, lambda: hvd.broadcast_global_variables(0))
    fails_with(InvalidArgumentError, lambda: hvd.allreduce(1.0, average=True, op=hvd.Sum))


def test_values_are_reduced_gathered_and_broadcast(run_ranks) -> None:
    run_ranks(2, values_are_exchanged)


def ranks_with_other_networks() -> None:
    hvd.init()
    inputs, targets = samples(BATCH)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4 + hvd.rank()), keras.layers.Dense(3)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    told = fails_with(MismatchError, lambda: model.fit(inputs, targets, verbose=0))
    assert "kernel" in told


def test_ranks_that_train_different_networks_hear_of_it(run_ranks) -> None:
    run_ranks(2, ranks_with_other_networks)


def no_torch_was_imported() -> None:
    hvd.init()
    assert "torch" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        __import__("torch")


def test_torch_is_not_needed(run_ranks) -> None:
    run_ranks(2, no_torch_was_imported, fresh=True)
