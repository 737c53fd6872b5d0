"""All-reduce of sparse tensors, which DistributedDataParallel needs for `nn.Embedding(sparse=True)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from gyre._tensors.sparse import SparseSum
from gyre._torch_private import parts_of_sparse
from gyre.distributed import _requests
from gyre.errors import UnsupportedError

if TYPE_CHECKING:
    from gyre.distributed.process_group import ProcessGroup


def is_sparse(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.sparse_coo


def sparse_allreduce(group: ProcessGroup, tensor: torch.Tensor, opts: Any) -> dist.Work:
    """The sum, or average, in `tensor`, coalesced; wait() raises MismatchError, on every rank, if shapes differ.
    UnsupportedError for other operations."""
    count = len(SparseSum.NAMES)
    with group._begin("all_reduce of a sparse tensor", members=count) as (action, name):
        operation = _requests.name_of(opts.reduceOp)
        if operation not in ("SUM", "AVG"):
            raise UnsupportedError(f"{action}: {operation} is not supported; possible are SUM and AVG")
        reduction = _requests.reduction_of(opts.reduceOp, action)

        def known(values: torch.Tensor, action: str) -> torch.Tensor:
            return _requests.reducible(values, opts.reduceOp, action)

        one = SparseSum(tensor, parts_of_sparse(tensor.detach()), action, known, reduction, group.size())
        requests = one.requests([f"{name}.{number}" for number in range(count)], transient=True)
        handles = group._runtime.core.submit_group(requests)

    def finish() -> None:
        total = one.total(handles)
        with torch.no_grad():
            tensor.copy_(total)

    return group._work(handles, one.memory, [tensor], action, opts, finish)
