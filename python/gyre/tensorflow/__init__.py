"""Horovod's interface to TensorFlow.

    import gyre.tensorflow as hvd

    hvd.init()
    with tf.GradientTape() as tape:
        loss = …
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

Operations work eagerly and in a tf.function, on tensors in host memory, and carry gradients. Models trained by fit()
use gyre.keras. All failures are gyre.Error, a RuntimeError; in a tf.function TensorFlow raises its own error with their
text.
"""

from __future__ import annotations

from gyre._job.absent_names import GRADIENT_AGGREGATION, NO_ELASTIC, TENSORFLOW_DATA, explain_absent
from gyre._job.compression import Compression, Compressor
from gyre._job.introspection import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
    sycl_built,
)
from gyre._job.objects import allgather_object, broadcast_object
from gyre._job.place import (
    cross_rank,
    cross_size,
    is_homogeneous,
    local_rank,
    local_size,
    rank,
    size,
    start_timeline,
    statistics,
    stop_timeline,
)
from gyre._job.process_set_registry import add_process_set, process_set_by_id, remove_process_set
from gyre._job.process_sets import ProcessSet, global_process_set
from gyre._operations import ReduceOperation
from gyre._runtime import is_initialized, shutdown
from gyre.errors import Error
from gyre.keras import DistributedOptimizer, SyncBatchNormalization
from gyre.tensorflow._absent import (
    BroadcastGlobalVariablesHook,
    broadcast_global_variables,
    broadcast_object_fn,
)
from gyre.tensorflow._initialization import init
from gyre.tensorflow._operations import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    broadcast_,
    broadcast_variables,
    check_num_rank_power_of_2,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    reducescatter,
    size_op,
)
from gyre.tensorflow._tape import DistributedGradientTape, PartialDistributedGradientTape

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "Compressor",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Error",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_by_id",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "statistics",
    "stop_timeline",
    "sycl_built",
]

Average = ReduceOperation.AVERAGE
Sum = ReduceOperation.SUM
Min = ReduceOperation.MIN
Max = ReduceOperation.MAX
Product = ReduceOperation.PRODUCT
Adasum = ReduceOperation.ADASUM

#: The exception that scripts written for Horovod catch.
HorovodInternalError = Error

explain_absent(
    __name__,
    {
        "elastic": NO_ELASTIC,
        "LocalGradientAggregationHelper": GRADIENT_AGGREGATION,
        "data": TENSORFLOW_DATA,
    },
)
