"""gyre.tensorflow's operations against NumPy: results and gradients, eagerly and in a tf.function, on 1 to 3 ranks.
Each job runs many checks, because starting one costs most."""

import os
from collections.abc import Callable
from typing import Any

import gyre.tensorflow as hvd
import keras
import ml_dtypes
import numpy
import pytest
import tensorflow as tf
from expectations import fails_with
from gyre.errors import InvalidArgumentError, MismatchError, UnsupportedError
from keras_models import network, samples, weights

SIZES = [2, 3]


def own(shape: tuple[int, ...], dtype: Any = numpy.float32, rank: int | None = None) -> Any:
    """What a rank contributes: small whole numbers, so that sums are exact in every type."""
    random = numpy.random.default_rng(7 + (hvd.rank() if rank is None else rank))
    return random.integers(1, 5, shape).astype(dtype)


def everybody(shape: tuple[int, ...], dtype: Any = numpy.float32) -> list[Any]:
    return [own(shape, dtype, rank) for rank in range(hvd.size())]


def both_ways(call: Callable[..., Any], *inputs: Any) -> list[Any]:
    """Eagerly, then in a tf.function."""
    tensors = [tf.constant(one) for one in inputs]
    return [call(*tensors), tf.function(call)(*tensors)]


def check(result: Any, wanted: Any) -> None:
    assert result.dtype.as_numpy_dtype == numpy.asarray(wanted).dtype.type
    numpy.testing.assert_array_equal(result.numpy(), wanted)


def reductions() -> None:
    size = hvd.size()
    types = (numpy.float32, numpy.float64, numpy.float16, ml_dtypes.bfloat16, numpy.int32, numpy.int64, numpy.uint8)
    for dtype in types:
        for shape in ((), (2, 5), (0, 4)):
            rows = numpy.stack(everybody(shape, dtype))
            for op, wanted in (
                (hvd.Sum, rows.astype(numpy.float64).sum(0)),
                (hvd.Min, rows.min(0)),
                (hvd.Max, rows.max(0)),
                (hvd.Product, rows.astype(numpy.float64).prod(0)),
            ):
                check(hvd.allreduce(tf.constant(own(shape, dtype)), op=op), numpy.asarray(wanted).astype(dtype))
        traced = tf.function(lambda x: [hvd.allreduce(x, op=hvd.Sum), hvd.allreduce(x, op=hvd.Min)])
        rows = numpy.stack(everybody((3,), dtype))
        for result, wanted in zip(traced(tf.constant(own((3,), dtype))), (rows.sum(0), rows.min(0)), strict=True):
            check(result, wanted.astype(dtype))
    rows = numpy.stack(everybody((6,)))
    for result in both_ways(hvd.allreduce, own((6,))):
        numpy.testing.assert_allclose(result.numpy(), rows.mean(0), rtol=1e-6)
    factors = {"prescale_factor": 0.5, "postscale_factor": 3.0}
    for result in both_ways(lambda x: hvd.allreduce(x, op=hvd.Sum, **factors), own((6,))):
        check(result, rows.sum(0) * numpy.float32(1.5))
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for result in both_ways(lambda x, c=compression: hvd.allreduce(x, op=hvd.Sum, compression=c), own((6,))):
            check(result, rows.sum(0))
    first, second = both_ways(
        lambda x, y: hvd.grouped_allreduce([x, y], op=hvd.Sum), own((4,)), own((2, 2), numpy.float64)
    )
    for results in (first, second):
        check(results[0], numpy.sum(everybody((4,)), 0))
        check(results[1], numpy.sum(everybody((2, 2), numpy.float64), 0))
    adapted = [result.numpy() for result in both_ways(lambda x: hvd.allreduce(x, op=hvd.Adasum), own((6,)))]
    numpy.testing.assert_array_equal(*adapted)
    if size == 2:
        a, b = rows.astype(numpy.float64)
        dot = a @ b
        numpy.testing.assert_allclose(adapted[0], (1 - dot / (2 * a @ a)) * a + (1 - dot / (2 * b @ b)) * b, rtol=1e-6)
    with pytest.warns(DeprecationWarning, match="op=Average"):
        check(hvd.allreduce(tf.constant(own((6,))), average=False), rows.sum(0))


def rows_and_roots() -> None:
    rank, size = hvd.rank(), hvd.size()
    mine = own((rank + 1, 2))
    wanted = numpy.concatenate([own((other + 1, 2), rank=other) for other in range(size)])
    for result in both_ways(hvd.allgather, mine):
        check(result, wanted)
    for results in both_ways(lambda x, y: hvd.grouped_allgather([x, y]), mine, numpy.int32(rank)):
        check(results[0], wanted)
        check(results[1], numpy.arange(size, dtype=numpy.int32))
    for root in range(size):
        for result in both_ways(lambda x, root=root: hvd.broadcast(x, root), own((3,))):
            check(result, own((3,), rank=root))
    variables = [tf.Variable(own((3,))), keras.Variable(own((2, 2)))]
    hvd.broadcast_variables(variables, size - 1)
    numpy.testing.assert_array_equal(variables[0].numpy(), own((3,), rank=size - 1))
    numpy.testing.assert_array_equal(variables[1].numpy(), own((2, 2), rank=size - 1))
    rows = size * 2 + 1  # Not divisible by 2 or 3.
    total = numpy.sum(everybody((rows, 2)), 0)
    shares = numpy.array_split(total, size)
    for result in both_ways(lambda x: hvd.reducescatter(x, op=hvd.Sum), own((rows, 2))):
        check(result, shares[rank])
    for results in both_ways(lambda x: hvd.grouped_reducescatter([x, x * 2], op=hvd.Sum), own((rows, 2))):
        check(results[1], shares[rank] * 2)
    numpy.testing.assert_allclose(hvd.reducescatter(own((rows, 2))).numpy(), shares[rank] / size, rtol=1e-6)
    splits = numpy.arange(size) + rank
    sent = [
        numpy.split(own((int((numpy.arange(size) + r).sum()), 2), rank=r), numpy.cumsum(numpy.arange(size) + r)[:-1])
        for r in range(size)
    ]
    wanted = numpy.concatenate([parts[rank] for parts in sent])
    for rows_of, received in both_ways(hvd.alltoall, own((int(splits.sum()), 2)), splits):
        check(rows_of, wanted)
        check(received, (numpy.arange(size) + rank).astype(numpy.int32))
    for result in both_ways(hvd.alltoall, own((size, 2))):
        check(result, numpy.stack([own((size, 2), rank=other)[rank] for other in range(size)]))


def gradients() -> None:
    """The table of Horovod: docs/guide/from_keras.md."""
    rank, size = hvd.rank(), hvd.size()
    weight = [numpy.float32(other + 1) for other in range(size)]  # Of each rank's loss.

    def slope(call: Callable[[Any], Any], value: Any) -> list[Any]:
        def body(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(call(x)) * weight[rank]
            return tape.gradient(loss, x)

        return [one.numpy() for one in both_ways(body, value)]

    mean, total = numpy.mean(weight), numpy.sum(weight)
    value = own((size * 2, 3))
    for call, wanted in (
        (hvd.allreduce, mean),
        (lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5), total * 0.5),
        (lambda x: hvd.grouped_allreduce([x, x], op=hvd.Sum)[0], total),
        (lambda x: hvd.broadcast(x, size - 1), mean if rank == size - 1 else 0.0),
        (hvd.allgather, mean),
        (lambda x: hvd.grouped_allgather([x])[0], mean),
    ):
        for result in slope(call, value):
            numpy.testing.assert_allclose(result, numpy.full_like(value, wanted), rtol=1e-6)
    by_owner = numpy.repeat(weight, 2)[:, None] * numpy.ones_like(value)
    for op, factor in ((hvd.Average, 1.0), (hvd.Sum, size)):
        for result in slope(lambda x, op=op: hvd.reducescatter(x, op=op), value):
            numpy.testing.assert_allclose(result, by_owner * factor, rtol=1e-6)
    for result in slope(hvd.alltoall, value):
        numpy.testing.assert_allclose(result, by_owner, rtol=1e-6)
    told = fails_with(UnsupportedError, lambda: slope(lambda x: hvd.allreduce(x, op=hvd.Max), value))
    assert "op=Max has no gradient" in told


def sparse_and_wrong() -> None:
    rank, size = hvd.rank(), hvd.size()
    slices = tf.IndexedSlices(tf.constant(own((2, 3))), tf.constant([rank, 0]), tf.constant([size, 3]))
    dense = numpy.zeros((size, 3), numpy.float32)
    for other in range(size):
        numpy.add.at(dense, [other, 0], own((2, 3), rank=other))
    numpy.testing.assert_allclose(tf.convert_to_tensor(hvd.allreduce(slices, op=hvd.Sum)).numpy(), dense)
    numpy.testing.assert_allclose(tf.convert_to_tensor(hvd.allreduce(slices)).numpy(), dense / size, rtol=1e-6)
    both = hvd.grouped_allreduce([slices, tf.constant(own((2,)))], op=hvd.Sum)
    numpy.testing.assert_allclose(tf.convert_to_tensor(both[0]).numpy(), dense)
    check(both[1], numpy.sum(everybody((2,)), 0))
    fails_with(UnsupportedError, lambda: hvd.allreduce(slices, op=hvd.Max))
    fails_with(UnsupportedError, lambda: hvd.allreduce(slices, prescale_factor=2.0))
    fails_with(InvalidArgumentError, lambda: hvd.allreduce(tf.constant(1.0), average=True, op=hvd.Sum))
    fails_with(InvalidArgumentError, lambda: hvd.allreduce(tf.constant(1.0), op="sum"))
    fails_with(InvalidArgumentError, lambda: hvd.allreduce(tf.constant(1j)))
    fails_with(InvalidArgumentError, lambda: hvd.reducescatter(tf.constant([1.0]), op=hvd.Adasum))
    fails_with(InvalidArgumentError, lambda: hvd.broadcast(tf.constant(1.0), size))
    told = fails_with(UnsupportedError, lambda: tf.function(hvd.allreduce, jit_compile=True)(tf.constant(1.0)))
    assert "jit_compile=False" in told
    for absent in (
        lambda: hvd.broadcast_global_variables(0),
        hvd.broadcast_object_fn,
        lambda: hvd.BroadcastGlobalVariablesHook(0),
    ):
        assert "use " in fails_with(UnsupportedError, absent)
    if size > 1:
        told = fails_with(MismatchError, lambda: hvd.allreduce(tf.ones(1 + rank), name="differs"))
        assert "differs" in told
        inside = tf.function(lambda: hvd.allreduce(tf.ones(1 + rank), name="differs again"))
        assert "differs again" in fails_with(tf.errors.OpError, inside)


def places_and_objects() -> None:
    rank, size = hvd.rank(), hvd.size()
    place = tf.function(lambda: (hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()))
    assert [int(one) for one in place()] == [rank, size, rank, size]
    assert int(hvd.process_set_included_op()) == 1
    thing = {"rank": rank, "list": [1, (2, None)], "array": numpy.arange(4) * rank, "set": {1.5}}
    got = hvd.broadcast_object(thing, size - 1)
    assert (got["rank"], got["list"], got["set"]) == (size - 1, [1, (2, None)], {1.5})
    numpy.testing.assert_array_equal(got["array"], numpy.arange(4) * (size - 1))
    assert [one["rank"] for one in hvd.allgather_object(thing)] == list(range(size))
    fails_with(InvalidArgumentError, lambda: hvd.broadcast_object(lambda: rank, 0))
    assert hvd.broadcast_object(lambda: 7, 0, allow_pickle=True)() == 7
    if size == 3:
        half = hvd.add_process_set([0, 2])
        assert int(hvd.process_set_included_op(half.process_set_id)) == int(rank != 1)
        assert int(hvd.size_op(half.process_set_id)) == 2
        if rank != 1:
            check(
                hvd.allreduce(tf.constant(own((2,))), op=hvd.Sum, process_set=half),
                own((2,), rank=0) + own((2,), rank=2),
            )
        assert hvd.remove_process_set(half)
    if size > 1:
        for _ in range(rank):
            hvd.allreduce(tf.ones(2), op=hvd.Sum)
        assert hvd.join() == size - 1


def all_operations() -> None:
    hvd.init()
    reductions()
    rows_and_roots()
    gradients()
    sparse_and_wrong()
    places_and_objects()


@pytest.mark.parametrize("size", SIZES)
def test_operations_and_their_gradients(run_ranks, size: int) -> None:
    run_ranks(size, all_operations)


def cores_are_shared() -> None:
    hvd.init()
    ours = max(1, len(os.sched_getaffinity(0)) // hvd.size())
    threading = tf.config.threading
    assert threading.get_intra_op_parallelism_threads() == ours
    assert threading.get_inter_op_parallelism_threads() == max(2, ours)


def threads_stay_as_asked_for() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(3)
    hvd.init()
    assert tf.config.threading.get_intra_op_parallelism_threads() == 3
    assert tf.config.threading.get_inter_op_parallelism_threads() == 0


def test_ranks_share_the_cores_unless_the_script_says_otherwise(run_ranks) -> None:
    run_ranks(2, cores_are_shared)
    run_ranks(2, threads_stay_as_asked_for)


def a_tape_trains() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    inputs, targets = samples(12)
    mine = [array[rank::size] for array in (inputs, targets)]

    def trained(data: Any, wrap: Callable[[Any], Any], *, traced: bool) -> Any:
        model, optimizer = network(), keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)

        def step(x: Any, y: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            tape = wrap(tape)
            found = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(found, model.trainable_variables, strict=True))

        run = tf.function(step) if traced else step
        for _ in range(5):
            run(*data)
        return weights(model)

    alone = trained((inputs, targets), lambda tape: tape, traced=True)
    for options in (
        {},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.fp16},
        {"groups": 2},
        {"num_groups": 3},
    ):
        for traced in (True, False):
            together = trained(mine, lambda tape, o=options: hvd.DistributedGradientTape(tape, **o), traced=traced)
            numpy.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
            rows = hvd.allgather(together[None]).numpy()
            assert all(numpy.array_equal(row, rows[0]) for row in rows)
    adapted = trained(mine, lambda tape: hvd.DistributedGradientTape(tape, op=hvd.Adasum), traced=True)
    rows = hvd.allgather(adapted[None]).numpy()
    assert all(numpy.array_equal(row, rows[0]) for row in rows)


def tapes_in_detail() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    x, y, z = tf.Variable(2.0), tf.Variable([1.0, 2.0]), tf.Variable(5.0)
    table = tf.Variable(tf.ones((4, 2)))
    for scale in (True, False):
        with tf.GradientTape() as tape:
            loss = (x * (rank + 1.0)) + tf.reduce_sum(y * rank) + tf.reduce_sum(tf.gather(table, [rank, 3]))
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, scale_local_gradients=scale)
        assert isinstance(tape, tf.GradientTape)
        tape.register_local_source(y)
        found = tape.gradient(loss, {"x": x, "y": y, "z": z, "table": table})
        assert found["z"] is None
        assert float(found["x"]) == sum(range(1, size + 1))
        numpy.testing.assert_allclose(found["y"].numpy(), [rank / (size if scale else 1)] * 2)
        wanted = numpy.zeros((4, 2))
        for other in range(size):
            numpy.add.at(wanted, [other, 3], 1)
        assert isinstance(found["table"], tf.IndexedSlices)
        numpy.testing.assert_allclose(tf.convert_to_tensor(found["table"]).numpy(), wanted)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [rank, 3]))
    dense = hvd.DistributedGradientTape(tape, op=hvd.Sum, sparse_as_dense=True).gradient(loss, [table])
    numpy.testing.assert_allclose(dense[0].numpy(), wanted)
    layer = keras.layers.Dense(1, use_bias=False)
    layer.build((None, 1))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.ones((1, 1))) * (rank + 1.0))
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=layer, scale_local_gradients=False)
    numpy.testing.assert_array_equal(tape.gradient(loss, layer.trainable_variables)[0].numpy(), [[rank + 1]])
    for options in (
        {"op": hvd.Max},
        {"op": hvd.Sum, "gradient_predivide_factor": 2.0},
        {"gradient_predivide_factor": 0.0},
    ):
        fails_with(InvalidArgumentError, lambda o=options: hvd.DistributedGradientTape(tf.GradientTape(), **o))
    fails_with(InvalidArgumentError, lambda: hvd.DistributedGradientTape(tape))


def test_tapes_train_as_one_rank_with_the_whole_batch(run_ranks) -> None:
    run_ranks(2, a_tape_trains)


def test_tapes_keep_local_sparse_and_missing_gradients(run_ranks) -> None:
    run_ranks(2, tapes_in_detail)
