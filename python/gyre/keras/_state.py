"""A model's variables and its optimizer's, as NumPy arrays: broadcast, and compared between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy

from gyre._job import arrays
from gyre._job.arrays import memory_of
from gyre._operations import Kind, ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre.core import _core
from gyre.errors import UnsupportedError

_SEEDS = "seed_generator_state"


def variables_of(model: Any, optimizers: Sequence[Any]) -> list[Any]:
    """All that must be equal on all ranks, in an order that is equal there: the model's variables without the states of
    its random generators (every rank draws its own dropout masks), then the optimizers'."""
    own = [variable for variable in model.variables if _SEEDS not in str(variable.path)]
    return own + [variable for optimizer in optimizers for variable in optimizer.variables]


def describe(variables: Sequence[Any]) -> str:
    """A line for each. Without the path's numbers, which differ between ranks that have made other layers before."""
    return "\n".join(
        f"{v.path.rpartition('/')[2]} {keras.backend.standardize_dtype(v.dtype)}{list(v.shape)}" for v in variables
    )


def values_of(variables: Sequence[Any]) -> list[arrays.Array]:
    """Copies."""
    return [numpy.array(keras.ops.convert_to_numpy(variable.value), order="C") for variable in variables]


def broadcast(runtime: Runtime, variables: Sequence[Any], root: int, what: str) -> None:
    """Assigns the root's values; `root` is numbered within the runtime. MismatchError, on every rank, if the ranks do
    not have the same variables."""
    arrays.check_equal(runtime, describe(variables), what)
    values = values_of(variables)
    arrays.broadcast_arrays(runtime, values, root)
    if runtime.rank != root:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


def broadcast_global_variables(root_rank: int) -> None:
    """UnsupportedError: Keras 3 has no collection of all variables."""
    raise UnsupportedError(
        f"broadcast_global_variables({root_rank}): there is no collection of all variables since TensorFlow 2; use "
        "callbacks.BroadcastGlobalVariablesCallback, or gyre.tensorflow.broadcast_variables(model.variables, root_rank)"
    )


def difference(runtime: Runtime, variables: Sequence[Any]) -> tuple[Any, list[int]] | None:
    """The first variable whose values differ between ranks, and the ranks where they differ from rank 0's. Collective;
    every rank gets the same answer. Costs an exchange of 16 bytes where nothing differs."""
    hashes = numpy.array([_hash_of(value) for value in values_of(variables)], numpy.uint64)
    own = numpy.uint64(_hash_of(hashes)).view(numpy.int64)
    ends = numpy.array([own, ~own])
    lowest = numpy.empty_like(ends)
    minimum = Reduction(ReduceOperation.MIN)
    arrays.run(runtime, [arrays.request(runtime, Kind.ALLREDUCE, ends, target=lowest, reduction=minimum)])
    if lowest[0] == ~lowest[1]:
        return None
    table = [numpy.frombuffer(content, numpy.uint64) for content in arrays.gather_bytes(runtime, hashes.tobytes())]
    for index, variable in enumerate(variables):
        ranks = [rank for rank, other in enumerate(table) if other[index] != table[0][index]]
        if ranks:
            return variable, ranks
    return None


def _hash_of(array: arrays.Array) -> int:
    return _core.hash_memory(memory_of(array))
