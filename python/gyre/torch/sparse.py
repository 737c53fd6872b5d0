"""Sums of sparse tensors with Horovod's interface."""

from __future__ import annotations

import torch

from gyre._operations import Kind, ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre._tensors.memory import check_tensor
from gyre._tensors.sparse import SparseSum
from gyre._torch_private import parts_of_sparse
from gyre.errors import InvalidArgumentError, UnsupportedError
from gyre.torch import _staged
from gyre.torch._submissions import OneTimeName, describe, operation_name
from gyre.torch.handle import Handle


def sparse_allreduce(runtime: Runtime, tensor: torch.Tensor, name: str | None, reduction: Reduction) -> Handle:
    """The handle's result is a coalesced tensor; ranks whose shapes differ get MismatchError from it."""
    action = describe(Kind.ALLREDUCE, name)
    if not isinstance(tensor, torch.Tensor) or not tensor.is_sparse:
        raise InvalidArgumentError(f"{action}: expected a sparse COO tensor; use allreduce() for others")
    if reduction.operation not in (ReduceOperation.SUM, ReduceOperation.AVERAGE):
        raise UnsupportedError(f"{action}: sparse tensors can only be summed and averaged; pass tensor.to_dense()")
    if _staged.is_on_device(tensor):
        return _staged.sparse(runtime, tensor, action, lambda twin: sparse_allreduce(runtime, twin, name, reduction))
    stem = name if name is not None else OneTimeName(f"sparse.noname.{runtime.next_number('sparse')}")
    one = SparseSum(tensor, parts_of_sparse(tensor.detach()), action, check_tensor, reduction, runtime.size)
    full = [operation_name(runtime, Kind.ALLGATHER, type(stem)(f"{stem}.{part}")) for part in SparseSum.NAMES]
    handles = runtime.core.submit_group(one.requests([full_name for full_name, _ in full], full[0][1]))
    return Handle(runtime, handles, one.memory, one.total)
