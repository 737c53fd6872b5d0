"""Distributed training of PyTorch models, with Horovod's interface.

    import gyre.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

Start it with `gyre run -n 4 -- python train.py`, or under torchrun, mpirun or srun; alone it is a job of one rank.
All failures are gyre.Error, a RuntimeError.
"""

from __future__ import annotations

from gyre._job.absent_names import NO_ELASTIC, explain_absent
from gyre._job.compression import Compression, Compressor
from gyre._job.initialization import init
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
from gyre._job.process_set_registry import add_process_set, process_set_by_id, remove_process_set
from gyre._job.process_sets import ProcessSet, global_process_set
from gyre._runtime import is_initialized, shutdown
from gyre.errors import Error
from gyre.torch.amp import GradScaler
from gyre.torch.asynchronous import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather_async,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    barrier_async,
    broadcast_async,
    broadcast_async_,
    grouped_allgather_async,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    reducescatter_async,
    sparse_allreduce_async,
)
from gyre.torch.batch_norm import SyncBatchNorm
from gyre.torch.handle import Handle, poll, synchronize
from gyre.torch.optimizer import DistributedOptimizer
from gyre.torch.state import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from gyre.torch.synchronous import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "Error",
    "GradScaler",
    "Handle",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "barrier_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "process_set_by_id",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "statistics",
    "stop_timeline",
    "synchronize",
]


#: The exception that scripts written for Horovod catch.
HorovodInternalError = Error

explain_absent(__name__, {"elastic": NO_ELASTIC})
