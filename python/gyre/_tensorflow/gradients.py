"""The exchange of a list of TensorFlow's gradients: one step of a Layout, inside tf.function or outside."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy
import tensorflow as tf

from gyre._job.arrays import Array, array_over, data_type_number, memory_of
from gyre._job.gradient_exchange import NO_GROUP, Gradient, Layout
from gyre._tensorflow.library import library
from gyre.errors import InvalidArgumentError, UnsupportedError


def describe(name: str, tensor: Any, group: int = NO_GROUP) -> Gradient:
    """One gradient for GradientExchange.lay_out(). InvalidArgumentError for a shape that is not known when the
    function is traced, and for a type that cannot be exchanged."""
    if not tensor.shape.is_fully_defined():
        raise InvalidArgumentError(
            f"the gradient of '{name}' has the shape {tensor.shape}, which is not known before the first step; "
            "only gradients of fixed shapes can be exchanged (tf.ensure_shape() fixes one)"
        )
    number = data_type_number(tensor.dtype.name, f"gradient of '{name}'")
    return Gradient(name, number, tuple(tensor.shape.as_list()), group)


# AutoGraph would trace Gyre's own functions too, with warnings about those that it cannot follow.
@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def reduce(layout: Layout, tensors: Sequence[Any]) -> list[Any]:
    """One step: the reduced tensors, which are those of the layout."""
    if not tensors:
        return []
    check_can_run_here()
    if tf.executing_eagerly():
        return _step(layout, tensors)
    ops = library()
    results = _by_function(layout, tensors) if ops is None else _by_ops(ops, layout, tensors)
    for result, tensor in zip(results, tensors, strict=True):
        result.set_shape(tensor.shape)
    return list(results)


def _by_ops(ops: Any, layout: Layout, tensors: Sequence[Any]) -> Sequence[Any]:
    """The results are in the arena."""
    with tf.control_dependencies(contributions(ops, layout, tensors)):
        results: Sequence[Any] = ops.gyre_finish(plan=layout.number, T=[tensor.dtype for tensor in tensors])
    return results


def contributions(ops: Any, layout: Layout, tensors: Sequence[Any]) -> list[Any]:
    """Ops by which the gradients leave, each as soon as it has been computed."""
    return [
        ops.gyre_contribute(gradient=tensor, plan=layout.number, index=index) for index, tensor in enumerate(tensors)
    ]


def _by_function(layout: Layout, tensors: Sequence[Any]) -> Sequence[Any]:
    """One function for all of them, because each costs more than the exchange of a small gradient."""
    results: Sequence[Any] = tf.py_function(
        lambda *values: _step(layout, values), list(tensors), [tensor.dtype for tensor in tensors]
    )
    return results


def _step(layout: Layout, tensors: Sequence[Any]) -> list[Any]:
    arrays = [array_of(tensor) for tensor in tensors]
    layout.run([memory_of(array) for array in arrays])
    # Copies: the arena is written to again in the next step, and what a tape returns may be kept.
    return [
        tf.constant(array_over(layout.memory(index), numpy.dtype(tensor.dtype.as_numpy_dtype), tensor.shape))
        for index, tensor in enumerate(tensors)
    ]


def array_of(tensor: Any) -> Array:
    """The values of an eager tensor, in its own memory where NumPy knows its type."""
    if tensor.dtype in (tf.bfloat16, tf.bool) or tensor.shape.num_elements() == 0 or "CPU" not in tensor.device:
        return numpy.asarray(tensor.numpy(), order="C")
    return numpy.from_dlpack(tensor if hasattr(tensor, "__dlpack__") else _Lent(tensor))


class _Lent:
    """What a tensor of TensorFlow 2.16 lacks for numpy.from_dlpack()."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return tf.experimental.dlpack.to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # Host memory.


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def check_can_run_here() -> None:
    """UnsupportedError, while the function is traced, where its exchange could not run: in XLA, on GPUs, in several
    replicas of a tf.distribute strategy."""
    if not tf.executing_eagerly() and _is_for_xla():
        raise UnsupportedError(
            "Gyre's exchange cannot be compiled by XLA: pass jit_compile=False to model.compile() (to tf.function in "
            "a loop of your own)"
        )
    check_strategy(tf.distribute.get_strategy())
    if tf.config.list_logical_devices("GPU"):
        raise UnsupportedError(
            "TensorFlow computes on a GPU here, but gyre.tensorflow exchanges tensors in host memory: hide the GPUs "
            "(CUDA_VISIBLE_DEVICES='' or tf.config.set_visible_devices([], 'GPU')), or train with gyre.torch"
        )


def check_strategy(strategy: Any) -> None:
    """UnsupportedError if a strategy of tf.distribute has several replicas: they would all use one rank's exchange."""
    if strategy.num_replicas_in_sync > 1:
        name = type(strategy).__name__.replace("CollectiveAllReduceStrategy", "MultiWorkerMirroredStrategy")
        raise UnsupportedError(
            f"{name} of tf.distribute has {strategy.num_replicas_in_sync} replicas here, and "
            "gyre.keras and gyre.tensorflow train one on each rank: remove the strategy and its scope(), and start as "
            f"many ranks as you want replicas (gyre run -n {strategy.num_replicas_in_sync})"
        )


def _is_for_xla() -> bool:
    """Whether what is being traced will be compiled by XLA."""
    try:
        util = importlib.import_module("tensorflow.python.ops.control_flow_util")
        return bool(util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
    except (ImportError, AttributeError):  # Names that TensorFlow keeps to itself: then XLA itself reports it.
        return False
