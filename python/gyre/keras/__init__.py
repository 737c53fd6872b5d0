"""Distributed training of Keras models, with Horovod's interface.

    import gyre.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size())), loss=…)
    model.fit(…, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()])

Start it with `gyre run -n 4 -- python train.py`. Keras 3, on TensorFlow or torch. All failures are gyre.Error, a
RuntimeError. gyre.tensorflow has operations on tensors.
"""

from __future__ import annotations

from gyre._job.absent_names import NO_ELASTIC, explain_absent
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
from gyre._job.joining import join
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
from gyre._job.process_set_registry import add_process_set, remove_process_set
from gyre._job.process_sets import ProcessSet, global_process_set
from gyre._operations import ReduceOperation
from gyre._runtime import is_initialized, shutdown
from gyre.errors import Error
from gyre.keras import callbacks
from gyre.keras._batch_normalization import SyncBatchNormalization
from gyre.keras._batches import Batches
from gyre.keras._initialization import init
from gyre.keras._optimizer import DistributedOptimizer, PartialDistributedOptimizer
from gyre.keras._saving import load_model
from gyre.keras._state import broadcast_global_variables
from gyre.keras._values import allgather, allreduce, broadcast, reducescatter

__all__ = [
    "Adasum",
    "Average",
    "Batches",
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "Error",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
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

explain_absent(__name__, {"elastic": NO_ELASTIC})
