"""Calls that go to another device's backend, as the engine compares them between ranks: see gyre._devices.record."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed import ReduceOp

from gyre._devices.recorded_call import Signature
from gyre._operations import SUM, Kind, Reduction
from gyre._tensors.memory import DATA_TYPE_NUMBERS
from gyre.distributed._forms import listed, listed_pair
from gyre.distributed._requests import reduction_of
from gyre.errors import UnsupportedError


class _Call(NamedTuple):
    size: int  # Of the group.
    others: tuple[Any, ...]  # The arguments that are neither tensors nor splits.


_OPERATIONS = (ReduceOp, ReduceOp.RedOpType)
_BYTES = DATA_TYPE_NUMBERS[torch.uint8]


def _agreed(
    kind: Kind,
    like: torch.Tensor,
    shape: Sequence[int],
    call: _Call,
    splits: Sequence[int] = (),
    expected_splits: Sequence[int] = (),
) -> Callable[[], Signature]:
    """What can be done later is, and without the tensors, which may be freed."""
    dtype, others = like.dtype, call.others

    def signature() -> Signature:
        number = DATA_TYPE_NUMBERS.get(dtype)
        # Some types only the other backend knows.
        known = (_BYTES, (*shape, dtype.itemsize)) if number is None else (number, shape)
        return Signature(kind, *known, _reduction(others), _root(others), splits, expected_splits)

    return signature


def _shape(tensors: Sequence[torch.Tensor]) -> Sequence[int]:
    return tensors[0].shape if len(tensors) == 1 else (len(tensors), _elements(tensors))


def _elements(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _reduction(others: Sequence[Any]) -> Reduction:
    """Of an options object, or an argument of its own."""
    for value in others:
        operation = value if isinstance(value, _OPERATIONS) else getattr(value, "reduceOp", None)
        if operation is not None:
            try:
                return reduction_of(operation, "")
            except UnsupportedError:  # Of bits, or a factor that is a tensor: the other backend's affair.
                return SUM
    return SUM


def _root(others: Sequence[Any]) -> int:
    for value in others:
        root = value if isinstance(value, int) else getattr(value, "rootRank", None)
        if root is not None:
            return int(root)
    return 0


def _whole(kind: Kind, call: _Call, tensors: Any) -> Callable[[], Signature]:
    """The tensors of all ranks have one shape."""
    tensors = listed(tensors)
    return _agreed(kind, tensors[0], _shape(tensors), call)


def _allgather(call: _Call, outputs: Any, inputs: Any) -> Callable[[], Signature]:
    lists, inputs = listed_pair(outputs, inputs)
    inputs = listed(inputs)
    elements = _elements(inputs)
    # One row for each rank, so that they must agree about its length, unless they may differ.
    differ = len({tensor.numel() for tensor in lists[0]}) > 1
    return _agreed(Kind.ALLGATHER, inputs[0], (elements,) if differ else (1, elements), call)


def _allgather_into(call: _Call, outputs: Any, inputs: Any) -> Callable[[], Signature]:  # noqa: ARG001
    inputs = listed(inputs)
    return _agreed(Kind.ALLGATHER, inputs[0], (1, _elements(inputs)), call)


def _reduce_scatter(call: _Call, outputs: Any, inputs: Any) -> Callable[[], Signature]:  # noqa: ARG001
    flat: Any = listed(inputs)
    while not isinstance(flat[0], torch.Tensor):
        flat = flat[0]
    return _agreed(Kind.REDUCESCATTER, flat[0], (_elements(flat),), call)


def _alltoall_single(
    call: _Call,
    output: torch.Tensor,
    tensor: torch.Tensor,
    output_splits: Sequence[int] = (),
    input_splits: Sequence[int] = (),
) -> Callable[[], Signature]:
    received, sent = (
        list(splits) or [whole.shape[0] // call.size] * call.size
        for whole, splits in ((output, output_splits), (tensor, input_splits))
    )
    return _agreed(Kind.ALLTOALL, tensor, tensor.shape, call, sent, received)


def _alltoall(call: _Call, outputs: Any, inputs: Any) -> Callable[[], Signature]:
    sent, received = ([tensor.numel() for tensor in tensors] for tensors in (inputs, outputs))
    return _agreed(Kind.ALLTOALL, inputs[0], (sum(sent),), call, sent, received)


def _gather(call: _Call, outputs: Any, inputs: Any) -> Callable[[], Signature]:
    tensor = listed(listed_pair(outputs, inputs)[1])[0]
    return _agreed(Kind.ALLGATHER, tensor, (1, tensor.numel()), call)


def _scatter(call: _Call, outputs: Any, inputs: Any) -> Callable[[], Signature]:  # noqa: ARG001
    tensor = listed(outputs)[0]
    return _agreed(Kind.BROADCAST, tensor, tensor.shape, call)


def _barrier(call: _Call) -> Callable[[], Signature]:
    return _agreed(Kind.BARRIER, torch.empty(0, dtype=torch.uint8, device="cpu"), (0,), call)


_allreduce, _broadcast = functools.partial(_whole, Kind.ALLREDUCE), functools.partial(_whole, Kind.BROADCAST)
# Of each method the function that makes the request, and how many of its arguments are tensors or splits.
_MAKERS: dict[str, tuple[Callable[..., Callable[[], Signature]], int]] = {
    "allreduce": (_allreduce, 1),
    "allreduce_coalesced": (_allreduce, 1),
    "barrier": (_barrier, 0),
    "broadcast": (_broadcast, 1),
    "reduce": (_allreduce, 1),
    "allgather": (_allgather, 2),
    "allgather_coalesced": (_allgather_into, 2),
    "all_gather_single": (_allgather_into, 2),
    "all_gather_single_coalesced": (_allgather_into, 2),
    "reduce_scatter": (_reduce_scatter, 2),
    "reduce_scatter_single": (_reduce_scatter, 2),
    "reduce_scatter_single_coalesced": (_reduce_scatter, 2),
    "all_to_all_single": (_alltoall_single, 4),
    "alltoall": (_alltoall, 2),
    "gather": (_gather, 2),
    "scatter": (_scatter, 2),
}


def is_recorded(method: str) -> bool:
    """Messages are not: two ranks exchange them without the others."""
    return method in _MAKERS


def signature_of(
    method: str, size: int, arguments: tuple[Any, ...], options: dict[str, Any]
) -> Callable[[], Signature]:
    """What the ranks must agree about in a call of this method: types and sizes, the reduction, the root."""
    make, tensors = _MAKERS[method]
    return make(_Call(size, (*arguments[tensors:], *options.values())), *arguments[:tensors])
