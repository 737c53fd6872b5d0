"""A variable that has a gradient on some ranks only: the ranks would wait for each other, or add up the gradients of
different variables. The error names it."""

from typing import Any

import gyre.keras
import gyre.tensorflow as hvd
import keras
import pytest
import tensorflow as tf
from expectations import fails_with
from gyre.errors import MismatchError


def gradients_of(variables: list[Any], used: list[Any], op: Any = hvd.Average) -> Any:
    tape = tf.GradientTape()
    with tape:
        loss = tf.add_n([tf.reduce_sum(variable * variable) for variable in used])
    return hvd.DistributedGradientTape(tape, op=op).gradient(loss, variables)


def one_rank_lacks_gradients() -> None:
    hvd.init()
    rank = hvd.rank()
    alpha, beta = tf.Variable([1.0, 2.0], name="alpha"), tf.Variable([3.0, 4.0], name="beta")
    for function in (gradients_of, tf.function(gradients_of)):
        told = fails_with(MismatchError, lambda f=function: f([alpha, beta], [alpha, beta] if rank == 0 else [alpha]))
        assert told.startswith("'beta:0' has a gradient on rank 0, and none on rank 1: ")
    # Of one shape: each rank's only gradient is another variable's.
    told = fails_with(MismatchError, lambda: gradients_of([alpha, beta], [alpha] if rank == 0 else [beta]))
    assert told.startswith("'alpha:0' (and 1 more) has a gradient on rank 0, and none on rank 1: ")
    # None at all.
    gamma = tf.Variable([1.0])
    told = fails_with(MismatchError, lambda: gradients_of([alpha, beta], [gamma] if rank == 0 else [alpha, beta]))
    assert told.startswith("'alpha:0' (and 1 more) has a gradient on rank 1, and none on rank 0: ")
    # On no rank: it is left out.
    assert gradients_of([alpha, beta], [beta])[0] is None


def one_rank_lacks_gradients_of_adasum() -> None:
    hvd.init()
    rank = hvd.rank()
    alpha, beta = tf.Variable([1.0, 2.0], name="alpha"), tf.Variable([1.0, 2.0], name="beta")
    told = fails_with(MismatchError, lambda: gradients_of([alpha, beta], [(alpha, beta)[rank]], hvd.Adasum))
    assert told.startswith("'alpha:0' (and 1 more) has a gradient on rank 0, and none on rank 1: ")
    # Equal gradients are their own adaptive sum.
    for _ in range(2):
        own, other = gradients_of([alpha, beta], [alpha], hvd.Adasum)
        assert own.numpy().tolist() == [2.0, 4.0]
        assert other is None


def one_rank_lacks_gradients_of_a_model() -> None:
    hvd.init()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, name="first"), keras.layers.Dense(1)])
    optimizer = gyre.keras.DistributedOptimizer(keras.optimizers.SGD(0.1))
    variables = model.trainable_variables
    own = [variable.value * 0 if hvd.rank() == 1 or index != 2 else None for index, variable in enumerate(variables)]
    told = fails_with(MismatchError, lambda: optimizer.apply(own, variables))
    assert told.startswith(f"'{variables[2].path}' has a gradient on rank 1, and none on rank 0: ")


@pytest.mark.parametrize(
    "body", [one_rank_lacks_gradients, one_rank_lacks_gradients_of_adasum, one_rank_lacks_gradients_of_a_model]
)
def test_a_variable_without_a_gradient_on_one_rank_is_named(run_ranks, body) -> None:
    run_ranks(2, body)


def one_rank_lacks_a_gradient_later() -> None:
    hvd.init()
    alpha, beta = tf.Variable([1.0, 2.0], name="alpha"), tf.Variable([3.0, 4.0], name="beta")
    gradients_of([alpha, beta], [alpha, beta])
    told = fails_with(MismatchError, lambda: gradients_of([alpha, beta], [alpha, beta] if hvd.rank() == 0 else [alpha]))
    assert told.startswith("deadlock: ")
    assert "rank 1 waits for allgather 'allgather.the gradients of tape.1.2, without that of 'beta:0'" in told


def test_one_that_is_missing_in_a_later_step_is_named_by_the_deadlock(run_ranks) -> None:
    run_ranks(2, one_rank_lacks_a_gradient_later, environment={"GYRE_DEADLOCK_SECONDS": "1"})
