"""The ops through which a tf.function exchanges gradients: the results are those without them, a program may keep them,
and the library fits any TensorFlow from 2.16 on."""

import re
import subprocess
from pathlib import Path
from typing import Any

import gyre.keras as hvd
import keras
import numpy
import tensorflow as tf
from expectations import fails_with
from gyre._tensorflow import gradients
from gyre._tensorflow.library import FILE, library
from gyre.errors import ShutDownError
from keras_models import network, samples, weights

SOURCES = Path(__file__).parents[2] / "python" / "gyre" / "_tensorflow"


def trained(**options: Any) -> Any:
    inputs, targets = samples(24, seed=hvd.rank())
    model = network()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    model.compile(optimizer, "mse", **options)
    model.fit(inputs, targets, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return weights(model)


def both_ways_agree() -> None:
    hvd.init()
    assert library() is not None
    by_ops = trained()
    in_a_loop = trained(steps_per_execution=3)
    eagerly = trained(run_eagerly=True)
    gradients.library = lambda: None
    by_function = trained()
    for other in (in_a_loop, by_function):
        assert by_ops.tobytes() == other.tobytes()
    numpy.testing.assert_allclose(eagerly, by_ops, rtol=0, atol=1e-6)


def test_the_ops_and_the_function_without_them_give_the_same_bits(run_ranks) -> None:
    run_ranks(2, both_ways_agree)


class Keeps(keras.optimizers.SGD):
    """Assigns each gradient to a variable as it is, which may then share its memory."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.kept = [self.add_variable_from_reference(variable, name="kept") for variable in variables]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        kept = self.kept[self._get_variable_index(variable)]
        self.assign(kept, gradient)
        super().update_step(gradient, variable, learning_rate)


def kept_gradients_stay() -> None:
    hvd.init()
    shapes = [(1000, 30), (7,), ()]
    variables = [keras.Variable(keras.ops.zeros(shape)) for shape in shapes]
    optimizer = hvd.DistributedOptimizer(Keeps(0.1))

    @tf.function
    def step(factor: Any) -> Any:
        own = [tf.ones(shape) * (factor + hvd.rank()) for shape in shapes]
        optimizer.apply(own, variables)
        return list(optimizer.kept)

    @tf.function
    def halt(factor: Any) -> Any:
        """Exchanges, and keeps what came out of GyreFinish itself."""
        state = optimizer._gyre
        own = [tf.ones(shape) * (factor + hvd.rank()) for shape in shapes]
        layout = state.exchange.lay_out([gradients.describe(f"g{i}", g) for i, g in enumerate(own)])
        return gradients.reduce(layout, own)

    for count in range(1, 6):
        step(tf.constant(float(count)))
        for kept in optimizer.kept:
            numpy.testing.assert_array_equal(kept.numpy(), count + 0.5)
    results = [halt(tf.constant(float(count))) for count in range(5)]
    views = [[result.numpy() for result in one] for one in results]
    for count, one in enumerate(views):
        for array in one:
            numpy.testing.assert_array_equal(array, count + 0.5)
    for kept in optimizer.kept:
        numpy.testing.assert_array_equal(kept.numpy(), 5.5)
    hvd.shutdown()
    assert "shut down" in fails_with(tf.errors.AbortedError, lambda: halt(tf.constant(1.0)))
    assert "shut down" in fails_with(ShutDownError, lambda: optimizer.apply([v.value for v in variables], variables))
    numpy.testing.assert_array_equal(results[3][0].numpy(), 3.5)


def test_gradients_that_a_program_keeps_keep_their_values(run_ranks) -> None:
    run_ranks(2, kept_gradients_stay)


def a_contribution_waits_for_its_own_gradient() -> None:
    hvd.init()
    variables = [keras.Variable(keras.ops.zeros(shape)) for shape in ((4,), (3, 2), ())]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    optimizer.build(variables)

    @tf.function
    def step(factor: Any) -> None:
        optimizer.apply([tf.ones(variable.shape) * factor for variable in variables], variables)

    graph = step.get_concrete_function(tf.constant(1.0)).graph
    contributions = [op for op in graph.get_operations() if op.type == "GyreContribute"]
    # The last variables' first, as backward computes them.
    assert [op.inputs[0].shape.as_list() for op in contributions] == [[], [3, 2], [4]]
    for before, op in zip([None, *contributions], contributions, strict=False):
        assert op.inputs[0].op.type == "Mul"
        assert [other for other in op.control_inputs if other.type != "NoOp"] == ([] if before is None else [before])


def test_a_gradient_leaves_when_it_has_been_computed(run_ranks) -> None:
    """Later, all of the exchange would come after backward."""
    run_ranks(2, a_contribution_waits_for_its_own_gradient)


def test_the_declarations_are_those_of_tensorflow(tmp_path) -> None:
    """Both in one file: a compiler refuses two declarations of one C function that differ."""
    source = tmp_path / "both.cc"
    headers = ("kernels", "ops", "tf_status", "tf_tensor", "tf_datatype")
    source.write_text(
        "".join(f'#include "tensorflow/c/{name}.h"\n' for name in headers)
        + "#define GYRE_WITH_HEADERS_OF_TENSORFLOW\n"
        + f'#include "{SOURCES / "tensorflow_c_api.h"}"\n'
        + "static_assert(TF_OK == 0 && TF_ABORTED == 10 && sizeof(TF_Code) == 4 && sizeof(TF_DataType) == 4);\n"
    )
    command = ["g++", "-std=c++20", "-fsyntax-only", "-isystem", tf.sysconfig.get_include(), str(source)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    wrong = source.read_text().replace("static_assert", 'extern "C" int TF_NewStatus();\nstatic_assert')
    source.write_text(wrong)
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_the_library_needs_nothing_of_tensorflow_but_its_c_functions() -> None:
    dynamic = subprocess.run(["readelf", "--dynamic", "--wide", str(FILE)], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic.stdout))
    assert needed <= {"libtensorflow_framework.so.2", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6"}
    assert not re.search(r"\((RPATH|RUNPATH)\)", dynamic.stdout)
    symbols = subprocess.run(
        ["nm", "--dynamic", "--undefined-only", "--format=posix", str(FILE)], capture_output=True, text=True, check=True
    )
    names = {line.split()[0] for line in symbols.stdout.splitlines()}
    declared = set(re.findall(r"\b(TF_\w+)\(", (SOURCES / "tensorflow_c_api.h").read_text()))
    assert {name for name in names if name.startswith("TF_")} <= declared
    assert not [name for name in names if "absl" in name or "tensorflow" in name or "tsl" in name]
