"""Horovod's operations on TensorFlow's tensors, in a tf.function or outside, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gyre._job import joining
from gyre._job.compression import Compression, Compressor
from gyre._job.operation_argument import resolve_operation
from gyre._job.place import local_rank, local_size, rank
from gyre._job.process_set_registry import process_set_by_id
from gyre._job.process_sets import GLOBAL_ID, ProcessSet, global_process_set, root_in, runtime_of
from gyre._operations import ReduceOperation, Reduction
from gyre._tensorflow import calls, differentiable
from gyre._tensorflow.adaptive import adasum
from gyre._tensorflow.sparse import reduce_sparse
from gyre.errors import InvalidArgumentError, UnsupportedError


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """The reduction of the ranks' tensors, Average unless `op` (or the old `average`) says otherwise.

    tf.IndexedSlices: the rows and indices of all ranks, for Average divided by their number; other operations and
    factors raise UnsupportedError. `compression`: the type in which the values are sent and summed. The other
    arguments are for compatibility with Horovod.
    """
    del device_dense, device_sparse, ignore_name_scope
    reduction = Reduction(resolve_operation(op, average), prescale_factor, postscale_factor)
    runtime = runtime_of(process_set, "allreduce")
    if isinstance(tensor, tf.IndexedSlices):
        if reduction not in (Reduction(ReduceOperation.AVERAGE), Reduction(ReduceOperation.SUM)):
            raise UnsupportedError("allreduce of tf.IndexedSlices works with op=Average or Sum, without factors")
        return reduce_sparse(runtime, tensor, reduction)
    return _reduced(runtime, [tensor], reduction, compression, name)[0]


def _reduced(
    runtime: Any, tensors: Sequence[Any], reduction: Reduction, compression: type[Compressor], name: str | None
) -> list[Any]:
    compressed = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    values = [value for value, _ in compressed]
    if reduction.operation == ReduceOperation.ADASUM:
        results = adasum(runtime, values, reduction, name)
    else:
        results = differentiable.allreduce(runtime, values, reduction, name)
    return [compression.decompress(result, context) for result, (_, context) in zip(results, compressed, strict=True)]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> list[Any]:
    """allreduce() of several tensors in one exchange; tf.IndexedSlices among them by themselves."""
    del device_dense, device_sparse, ignore_name_scope
    operation = resolve_operation(op, average)
    runtime = runtime_of(process_set, "grouped_allreduce")
    results = list(tensors)
    dense = [index for index, one in enumerate(tensors) if not isinstance(one, tf.IndexedSlices)]
    reduction = Reduction(operation, prescale_factor, postscale_factor)
    if dense:
        reduced = _reduced(runtime, [tensors[index] for index in dense], reduction, compression, None)
        for index, result in zip(dense, reduced, strict=True):
            results[index] = result
    for index in set(range(len(results))) - set(dense):
        results[index] = allreduce(
            tensors[index],
            op=operation,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
    return results


def allgather(
    tensor: Any, name: str | None = None, ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set
) -> Any:
    """The rows of all ranks' tensors, in rank order; the ranks may have different numbers of rows."""
    del ignore_name_scope
    return differentiable.allgather(runtime_of(process_set, "allgather"), [tf.convert_to_tensor(tensor)], name)[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """allgather() of several tensors in one exchange."""
    del ignore_name_scope
    runtime = runtime_of(process_set, "grouped_allgather")
    return differentiable.allgather(runtime, [tf.convert_to_tensor(tensor) for tensor in tensors], name)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor of `root_rank`; every rank's has its shape and type."""
    del ignore_name_scope
    root = root_in(process_set, root_rank, "broadcast")
    return differentiable.broadcast(runtime_of(process_set, "broadcast"), tf.convert_to_tensor(tensor), root, name)


def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Sequence[Any]:
    """Assigns the root's values to the variables, in one exchange; returns the variables."""
    if not variables:
        return variables
    runtime, root = runtime_of(process_set, "broadcast"), root_in(process_set, root_rank, "broadcast")
    results = calls.broadcast_all(runtime, [tf.convert_to_tensor(variable) for variable in variables], root, name)
    for variable, result in zip(variables, results, strict=True):
        variable.assign(result)
    return variables


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> None:
    """Assigns the root's values to the variables of all ranks, tf.Variables or Keras's, in one exchange. `inplace` is
    for compatibility with Horovod."""
    del inplace
    broadcast_(list(variables), root_rank, process_set=process_set)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends splits[i] rows to rank i (equal numbers, if no splits are given) and returns the rows that came, in rank
    order; if splits are given, (rows, how many came from each rank)."""
    del ignore_name_scope
    runtime = runtime_of(process_set, "alltoall")
    rows, received = differentiable.alltoall(runtime, tf.convert_to_tensor(tensor), splits, name)
    return rows if splits is None else (rows, received)


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation = ReduceOperation.AVERAGE,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's share of the rows of the reduction; the first ranks have one more where they cannot be equal."""
    options = (compression, op, process_set, prescale_factor, postscale_factor)
    return grouped_reducescatter([tensor], device_dense, *options, name=name)[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOperation = ReduceOperation.AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """reducescatter() of several tensors in one exchange."""
    del device_dense
    if op == ReduceOperation.ADASUM:
        raise InvalidArgumentError("reducescatter: op=Adasum is for allreduce only")
    reduction = Reduction(resolve_operation(op, None), prescale_factor, postscale_factor)
    compressed = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    runtime = runtime_of(process_set, "reducescatter")
    results = differentiable.reducescatter(runtime, [value for value, _ in compressed], reduction, name)
    return [compression.decompress(one, context) for one, (_, context) in zip(results, compressed, strict=True)]


def join() -> int:
    """See gyre.torch.join: this rank has no more data, and waits here while the others' allreduces go on. Returns the
    rank that joined last."""
    return joining.join()


def rank_op(name: str | None = None) -> Any:
    """rank() as an int32, at the time at which a function runs."""
    del name
    return calls.number(rank)


def size_op(process_set_id: int = GLOBAL_ID, name: str | None = None) -> Any:
    """The number of ranks of the process set as an int32, at the time at which a function runs."""
    del name
    return calls.number(lambda: process_set_by_id(process_set_id).size() or 0)


def local_rank_op(name: str | None = None) -> Any:
    """local_rank() as an int32, at the time at which a function runs."""
    del name
    return calls.number(local_rank)


def local_size_op(name: str | None = None) -> Any:
    """local_size() as an int32, at the time at which a function runs."""
    del name
    return calls.number(local_size)


def process_set_included_op(process_set_id: int = GLOBAL_ID, name: str | None = None) -> Any:
    """Whether this rank is in the process set, as an int32 (1 or 0), at the time at which a function runs."""
    del name
    return calls.number(lambda: int(process_set_by_id(process_set_id).included()))


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether the number is a power of 2. (Gyre's Adasum takes any number of ranks.)"""
    return num_rank > 0 and num_rank.bit_count() == 1


__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_variables",
    "check_num_rank_power_of_2",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]
