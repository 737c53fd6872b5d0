"""All-reduce of sparse tensors, which DistributedDataParallel needs for `nn.Embedding(sparse=True)`: every rank gets
all indices and values, and adds them up in the order of the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from gyre.distributed import _requests
from gyre.errors import MismatchError, UnsupportedError

if TYPE_CHECKING:
    from gyre.distributed.process_group import ProcessGroup


def is_sparse(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.sparse_coo


def sparse_allreduce(group: ProcessGroup, tensor: torch.Tensor, opts: Any) -> dist.Work:
    """The sum, or average, in `tensor`, coalesced. Waits for the other ranks to say how many values they bring; the
    values travel as the caller goes on. UnsupportedError for other operations; MismatchError, on every rank, where
    shapes differ."""
    operation = _requests.name_of(opts.reduceOp)
    if operation not in ("SUM", "AVG"):
        raise UnsupportedError(f"all_reduce of a sparse tensor: {operation} is not supported; possible are SUM and AVG")
    own = tensor.detach().coalesce()
    size = group.size()
    description = torch.tensor([own.values().shape[0], own.sparse_dim(), *own.shape])
    descriptions = torch.empty((size, len(description)), dtype=torch.int64)
    group.all_gather_single(descriptions, description).wait()
    if bool((descriptions[:, 1:] != descriptions[0, 1:]).any()):
        shapes = [tuple(row[2:]) for row in descriptions.tolist()]
        raise MismatchError(f"all_reduce of a sparse tensor: the ranks' shapes differ: {shapes}")
    counts: list[int] = descriptions[:, 0].tolist()
    most = max(counts)
    indices, values = own.indices(), own.values()
    sent_indices = indices.new_zeros((most, indices.shape[0]))
    sent_indices[: own.values().shape[0]] = indices.t()
    sent_values = values.new_zeros((most, *values.shape[1:]))
    sent_values[: own.values().shape[0]] = values
    all_indices = sent_indices.new_empty((size, *sent_indices.shape))
    all_values = sent_values.new_empty((size, *sent_values.shape))
    with group._begin("all_reduce of a sparse tensor's indices") as (action, name):
        first, first_memory, take_indices = group._gathering([all_indices], sent_indices, action, name)
    with group._begin("all_reduce of a sparse tensor's values") as (action, name):
        second, second_memory, take_values = group._gathering([all_values], sent_values, action, name)

    def finish() -> None:
        take_indices()
        take_values()
        at = torch.cat([part[:count] for part, count in zip(all_indices, counts, strict=True)])
        total = torch.cat([part[:count] for part, count in zip(all_values, counts, strict=True)])
        if operation == "AVG":
            total = total / size
        result = torch.sparse_coo_tensor(at.t(), total.to(tensor.dtype), tensor.shape).coalesce()
        with torch.no_grad():
            tensor.copy_(result)

    return group._work([first, second], [*first_memory, *second_memory], [tensor], action, opts, finish)
