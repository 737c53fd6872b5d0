"""The operations of gyre.torch as a device's own library carries them out: see gyre.torch._delegate.

Each function returns a handle, or None where the operation is to go through host memory (gyre.torch._staged). That is
decided by what all ranks see alike: types, reductions, devices. `stage`, of the name that it is given, does so later,
where the ranks find out together that the library cannot be used: ranks share a device, or some have joined.

Results have the types and shapes that Gyre's own exchange gives; sums are added in the library's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.graph import increment_version

from gyre._operations import Kind, ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre._tensors.memory import dense
from gyre._tensors.requests import make_request
from gyre.torch._delegate import delegate_of, run_work
from gyre.torch._delegated_call import Agreement, Part
from gyre.torch._submissions import operation_name
from gyre.torch.handle import Handle

Stage = Callable[[str], Handle]

# By torch's names, because some torches are built without torch.distributed.
_REDUCTIONS = {
    ReduceOperation.SUM: "SUM",
    ReduceOperation.AVERAGE: "AVG",
    ReduceOperation.MIN: "MIN",
    ReduceOperation.MAX: "MAX",
    ReduceOperation.PRODUCT: "PRODUCT",
}


def _can_reduce(tensors: Sequence[torch.Tensor], reduction: Reduction) -> bool:
    scales = reduction.prescale != 1.0 or reduction.postscale != 1.0
    # Whole numbers are scaled, and divided, by the rules of Gyre's own exchange.
    return reduction.operation in _REDUCTIONS and (
        all(tensor.is_floating_point() for tensor in tensors)
        or (not scales and reduction.operation != ReduceOperation.AVERAGE)
    )


def _scaled(values: torch.Tensor, factor: float) -> None:
    if factor != 1.0:
        values.mul_(factor)


def _request(
    runtime: Runtime,
    kind: Kind,
    tensor: torch.Tensor,
    name: str | None,
    reduction: Reduction = Reduction(ReduceOperation.SUM),  # noqa: B008  It is immutable.
    **options: Any,
) -> Any:
    full_name, transient = operation_name(runtime, kind, name)
    return make_request(
        kind, full_name, tensor, tensor.shape, reduction=reduction, transient=transient, elsewhere=True, **options
    )


def _own_memory(tensor: torch.Tensor, *, in_place: bool) -> torch.Tensor:
    """Contiguous, with the tensor's values, for the library to overwrite; the tensor's own if it may be."""
    values = dense(tensor)
    shares_memory = values is tensor or values.data_ptr() == tensor.data_ptr()
    return values.clone() if shares_memory and not in_place else values


def _written(tensor: torch.Tensor, values: torch.Tensor, *, in_place: bool) -> torch.Tensor:
    """The result, of what is in `values`."""
    if not in_place:
        return values
    if values.data_ptr() != tensor.data_ptr() or not tensor.is_contiguous():
        tensor.detach().copy_(values)
    increment_version(tensor)
    return tensor


def _reduction_part(
    runtime: Runtime, tensor: torch.Tensor, name: str | None, reduction: Reduction, *, in_place: bool
) -> Part:
    def carry_out(group: Any, agreement: Agreement, own: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
        values = _own_memory(own, in_place=in_place)
        _scaled(values, reduction.prescale)
        if values.numel():
            options = dist.AllreduceOptions()
            options.reduceOp = getattr(dist.ReduceOp, _REDUCTIONS[reduction.operation])
            run_work(group.allreduce([values], options))
        _scaled(values, reduction.postscale)
        return _written(own, values, in_place=in_place)

    return Part(_request(runtime, Kind.ALLREDUCE, tensor, name, reduction), tensor, carry_out, in_place)


def allreduce(
    runtime: Runtime,
    tensors: Sequence[torch.Tensor],
    names: Callable[[], Sequence[str | None]],
    reduction: Reduction,
    action: str,
    stage: Stage,
    *,
    in_place: bool,
    one: bool,
) -> Handle | None:
    """`names`: of the tensors' operations, called only if they go to the library. `one`: the handle's result is that of
    the only tensor, not a list."""
    delegate = delegate_of(runtime, tensors)
    if delegate is None or not _can_reduce(tensors, reduction):
        return None
    parts = [
        _reduction_part(runtime, tensor, name, reduction, in_place=in_place)
        for tensor, name in zip(tensors, names(), strict=True)
    ]
    return delegate.submit(parts, stage, action, (lambda results: results[0]) if one else list)


def _broadcast_part(runtime: Runtime, tensor: torch.Tensor, name: str | None, root: int, *, in_place: bool) -> Part:
    def carry_out(group: Any, agreement: Agreement, own: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
        values = _own_memory(own, in_place=in_place)
        if values.numel():
            options = dist.BroadcastOptions()
            options.rootRank = root
            options.rootTensor = 0
            run_work(group.broadcast([values], options))
        return _written(own, values, in_place=in_place)

    return Part(_request(runtime, Kind.BROADCAST, tensor, name, root=root), tensor, carry_out, in_place)


def broadcast(
    runtime: Runtime,
    tensors: Sequence[torch.Tensor],
    names: Sequence[str | None],
    root: int,
    action: str,
    stage: Stage,
    *,
    in_place: bool,
    one: bool,
) -> Handle | None:
    """`root` counts within the runtime's ranks. `one`: as for allreduce()."""
    delegate = delegate_of(runtime, tensors)
    if delegate is None:
        return None
    parts = [
        _broadcast_part(runtime, tensor, name, root, in_place=in_place)
        for tensor, name in zip(tensors, names, strict=True)
    ]
    return delegate.submit(parts, stage, action, (lambda results: results[0]) if one else list)


def _gathering_part(runtime: Runtime, tensor: torch.Tensor, name: str | None) -> Part:
    def carry_out(group: Any, agreement: Agreement, own: torch.Tensor) -> torch.Tensor:
        own = dense(own)
        whole = own.new_empty((sum(agreement.rows), *own.shape[1:]))
        if whole.numel():
            run_work(group.allgather([list(whole.split_with_sizes(agreement.rows))], [own]))
        return whole

    return Part(_request(runtime, Kind.ALLGATHER, tensor, name), tensor, carry_out)


def allgather(
    runtime: Runtime,
    tensors: Sequence[torch.Tensor],
    names: Callable[[], Sequence[str | None]],
    action: str,
    stage: Stage,
    *,
    one: bool,
) -> Handle | None:
    """`names` and `one`: as for allreduce()."""
    delegate = delegate_of(runtime, tensors)
    if delegate is None:
        return None
    parts = [_gathering_part(runtime, tensor, name) for tensor, name in zip(tensors, names(), strict=True)]
    return delegate.submit(parts, stage, action, (lambda results: results[0]) if one else list)


def _share_part(runtime: Runtime, tensor: torch.Tensor, name: str | None, reduction: Reduction) -> Part:
    rows, extra = divmod(tensor.shape[0], runtime.size) if tensor.dim() else (0, 0)
    shares = [rows + (rank < extra) for rank in range(runtime.size)]

    def carry_out(group: Any, agreement: Agreement, own: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
        values = _own_memory(own, in_place=reduction.prescale == 1.0)
        _scaled(values, reduction.prescale)
        share = values.new_empty((shares[runtime.rank], *values.shape[1:]))
        if values.numel():
            options = dist.ReduceScatterOptions()
            options.reduceOp = getattr(dist.ReduceOp, _REDUCTIONS[reduction.operation])
            run_work(group.reduce_scatter([share], [list(values.split_with_sizes(shares))], options))
        _scaled(share, reduction.postscale)
        return share

    return Part(_request(runtime, Kind.REDUCESCATTER, tensor, name, reduction), tensor, carry_out)


def reducescatter(
    runtime: Runtime,
    tensors: Sequence[torch.Tensor],
    names: Callable[[], Sequence[str | None]],
    reduction: Reduction,
    action: str,
    stage: Stage,
    *,
    one: bool,
) -> Handle | None:
    """`names` and `one`: as for allreduce()."""
    delegate = delegate_of(runtime, tensors)
    if delegate is None or not _can_reduce(tensors, reduction):
        return None
    parts = [_share_part(runtime, tensor, name, reduction) for tensor, name in zip(tensors, names(), strict=True)]
    return delegate.submit(parts, stage, action, (lambda results: results[0]) if one else list)


def alltoall(
    runtime: Runtime,
    tensor: torch.Tensor,
    splits: Sequence[int] | None,
    name: str | None,
    action: str,
    stage: Stage,
    dtype: torch.dtype,
) -> Handle | None:
    """The handle's result is (tensor, received splits of type `dtype`)."""
    delegate = delegate_of(runtime, [tensor])
    if delegate is None:
        return None
    request = _request(runtime, Kind.ALLTOALL, tensor, name, splits=splits or ())
    # How many rows come from each rank travels between the hosts.
    sent = list(splits) if splits else [tensor.shape[0] // runtime.size] * runtime.size if tensor.dim() else []
    counts = torch.tensor(sent, dtype=torch.int64, device="cpu")
    counts_request = make_request(
        Kind.ALLTOALL, f"{request.name}.splits", counts, counts.shape, source=counts, splits=[1] * runtime.size
    )
    under_way: list[Any] = []
    received: list[int] = []

    def carry_out(group: Any, agreement: Agreement, own: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
        under_way[0].wait()  # Every rank has brought its own.
        memory, _, _ = under_way[0].take_result()
        received.extend(torch.frombuffer(memory, dtype=torch.int64).tolist())
        own = dense(own)
        result = own.new_empty((sum(received), *own.shape[1:]))
        run_work(group.alltoall_base(result, own, received, sent))
        return result

    return delegate.submit(
        [Part(request, tensor, carry_out)],
        stage,
        action,
        lambda results: (results[0], torch.tensor(received, dtype=dtype, device="cpu")),
        beside=lambda: under_way.extend((runtime.core.submit(counts_request), counts)),  # Which must live as long.
    )
