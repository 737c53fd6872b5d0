"""Sums of sparse tensors: only their entries travel."""

from __future__ import annotations

import torch

from gyre._runtime import Runtime
from gyre._tensors.memory import check_tensor
from gyre._tensors.requests import Kind, ReduceOperation, Reduction
from gyre.errors import InvalidArgumentError, UnsupportedError
from gyre.torch._submissions import Batch, OneTimeName, describe, gathering_submission
from gyre.torch.handle import Handle


def sparse_allreduce(runtime: Runtime, tensor: torch.Tensor, name: str | None, reduction: Reduction) -> Handle:
    """Gathers all ranks' entries; entries of one place are added in rank order. The shape of the dense part must agree
    between ranks. The handle's result is a coalesced tensor of the shape given."""
    action = describe(Kind.ALLREDUCE, name)
    if not isinstance(tensor, torch.Tensor) or not tensor.is_sparse:
        raise InvalidArgumentError(f"{action}: expected a sparse COO tensor; for others there is allreduce()")
    if reduction.operation not in (ReduceOperation.SUM, ReduceOperation.AVERAGE):
        raise UnsupportedError(f"{action}: sparse tensors can be summed and averaged only; pass tensor.to_dense()")
    stem = name if name is not None else OneTimeName(f"sparse.noname.{runtime.next_number('sparse')}")
    own = tensor.detach().coalesce()
    values = check_tensor(own.values(), action)
    places = own.indices().t().contiguous()
    # The shape travels with the places: entries beyond another rank's shape would not be found otherwise.
    shape = torch.tensor([list(own.shape)], dtype=torch.int64)
    batch = Batch(runtime)
    for part, content in (("places", places), ("values", values), ("shape", shape)):
        batch.submissions.append(gathering_submission(runtime, Kind.ALLGATHER, content, type(stem)(f"{stem}.{part}")))
    gathered = batch.submit()
    size = own.shape

    def finish(_: object) -> torch.Tensor:
        (all_places, _), (all_values, _), (shapes, _) = gathered.wait()
        if not bool((shapes == shapes[0]).all()):
            raise InvalidArgumentError(f"{action}: the ranks' tensors have the shapes {shapes.tolist()}")
        factor = reduction.prescale * reduction.postscale
        if reduction.operation == ReduceOperation.AVERAGE:
            factor /= runtime.size
        summed = torch.sparse_coo_tensor(all_places.t(), all_values, size, check_invariants=True).coalesce()
        return summed if factor == 1.0 else (summed * factor).coalesce()

    return Handle(runtime, [], None, finish, before=gathered)
