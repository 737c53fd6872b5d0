"""Converts the arguments of a process group's methods to parts of the engine's requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

from gyre._operations import ReduceOperation, Reduction
from gyre._tensors.memory import DATA_TYPE_NUMBERS, check_tensor, dense, memory_of, tensor_over
from gyre._torch_private import premultiplier
from gyre.core import _core
from gyre.errors import InvalidArgumentError, UnsupportedError

# Types that can be moved as other types of their size. Not every torch has all of them.
_STAND_INS = {
    getattr(torch, name): stand_in
    for name, stand_in in (
        ("uint16", torch.int16),
        ("uint32", torch.int32),
        ("uint64", torch.int64),
        ("float8_e4m3fn", torch.uint8),
        ("float8_e5m2", torch.uint8),
        ("float8_e4m3fnuz", torch.uint8),
        ("float8_e5m2fnuz", torch.uint8),
        ("float8_e8m0fnu", torch.uint8),
    )
    if hasattr(torch, name)
}
# By torch's names; a name that this torch does not have is left out.
_OPERATIONS = {
    "SUM": ReduceOperation.SUM,
    "AVG": ReduceOperation.AVERAGE,
    "MIN": ReduceOperation.MIN,
    "MAX": ReduceOperation.MAX,
    "PRODUCT": ReduceOperation.PRODUCT,
}
BITWISE = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}


def reduction_of(operation: Any, action: str) -> Reduction:
    """UnsupportedError for an unsupported ReduceOp."""
    for name, ours in _OPERATIONS.items():
        if operation == getattr(ReduceOp, name, None):
            return Reduction(ours)
    if operation == getattr(ReduceOp, "PREMUL_SUM", None):
        return Reduction(ReduceOperation.SUM, premultiplier(operation))
    possible = ", ".join((*_OPERATIONS, *BITWISE))
    raise UnsupportedError(f"{action}: {name_of(operation)} is not supported; possible are {possible} and PREMUL_SUM")


def combination(
    reduction: Reduction, host_of_rank: Sequence[int], own_rank: int
) -> Callable[[Sequence[torch.Tensor]], torch.Tensor]:
    """The same on this rank alone: of all ranks' tensors, in the order of a reduce-scatter whose result is this
    rank's."""
    count = max(host_of_rank) + 1
    order = [(host_of_rank[own_rank] + 1 + place) % count for place in range(count)]
    hosts = [[rank for rank, host in enumerate(host_of_rank) if host == number] for number in order]

    def combine(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        result = torch.empty_like(tensors[0])
        _core.combine_contributions(
            result=memory_of(result),
            contributions=[memory_of(tensor) for tensor in tensors],
            data_type=number_of(result),
            operation=reduction.operation,
            prescale=reduction.prescale,
            postscale=reduction.postscale,
            hosts=hosts,
        )
        return result

    return combine


def name_of(operation: Any) -> str:
    """ "BAND": an options object holds no RedOpType, which would say its name, but a ReduceOp, which does not."""
    names = getattr(ReduceOp.RedOpType, "__members__", {})
    return next((name for name, value in names.items() if operation == value), str(operation))


def bitwise_of(operation: Any, tensor: torch.Tensor, action: str) -> Any:
    """torch's function for BAND, BOR and BXOR of such tensors; None for other operations."""
    for name, function in BITWISE.items():
        if operation == getattr(ReduceOp, name, None):
            if tensor.is_floating_point() or tensor.is_complex():
                raise InvalidArgumentError(f"{action}: bitwise operations need integers or bool, not {tensor.dtype}")
            return function
    return None


def movable(tensor: torch.Tensor, action: str) -> torch.Tensor:
    """The tensor, or a view of its memory as a type that the engine knows, for operations that move values
    unchanged."""
    if isinstance(tensor, torch.Tensor) and tensor.dtype not in DATA_TYPE_NUMBERS and tensor.layout == torch.strided:
        if tensor.is_complex():
            return check_tensor(torch.view_as_real(tensor.detach()), action)
        if tensor.dtype in _STAND_INS:
            return check_tensor(tensor.detach().view(_STAND_INS[tensor.dtype]), action)
    return check_tensor(tensor, action)


def reducible(tensor: torch.Tensor, operation: Any, action: str) -> torch.Tensor:
    """The tensor, or a view of a complex one as pairs of numbers, which are summed separately."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_complex():
        return check_tensor(tensor, action)
    if name_of(operation) not in ("SUM", "AVG", "PREMUL_SUM"):
        raise InvalidArgumentError(f"{action}: {name_of(operation)} has no meaning for complex tensors")
    return movable(tensor, action)


def one_of(tensors: Sequence[torch.Tensor], action: str) -> torch.Tensor:
    """The only tensor of a list; torch passes lists because some backends accept several tensors."""
    if len(tensors) != 1:
        raise InvalidArgumentError(f"{action}: {len(tensors)} tensors were given where one is possible")
    return tensors[0]


def number_of(tensor: torch.Tensor) -> int:
    return DATA_TYPE_NUMBERS[tensor.dtype]


def same_type(tensors: Sequence[torch.Tensor], like: torch.Tensor, action: str) -> list[torch.Tensor]:
    """Each as movable() gives it."""
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.dtype != like.dtype:
            raise InvalidArgumentError(
                f"{action}: tensors of different types were given, {like.dtype} and {tensor.dtype}"
            )
    return [movable(tensor, action) for tensor in tensors]


def writable(tensor: torch.Tensor) -> bool:
    """Whether the engine can write directly into the tensor's memory."""
    return tensor.is_contiguous() and not tensor.is_neg()


def landing(tensor: torch.Tensor) -> torch.Tensor:
    """Where the engine writes the values for `tensor`: its own memory, or a temporary tensor to copy from."""
    return tensor.detach() if writable(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)


def copy_back(landed: torch.Tensor, tensor: torch.Tensor) -> None:
    if landed.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.detach().copy_(landed)


def apart(source: torch.Tensor, place: torch.Tensor, unless_at: int = -1) -> torch.Tensor:
    """`source`, copied if it shares memory with `place`, unless it begins `unless_at` bytes after it. FSDP gathers into
    a buffer that contains the input, and reduces into a part of the input."""
    source_begin, source_bytes = memory_of(source)
    place_begin, place_bytes = memory_of(place)
    if source_begin - place_begin == unless_at:
        return source
    shared = source_begin < place_begin + place_bytes and place_begin < source_begin + source_bytes
    return source.clone() if shared else source


def take_into(handle: _core.Handle, place: torch.Tensor) -> None:
    """After wait() the result is in `place`, even if the engine had to write it elsewhere."""
    memory, _, _ = handle.take_result()
    if len(memory) > 0:
        result = tensor_over(memory, place.dtype, [len(memory) // place.element_size()])
        if result.numel() == place.numel():
            place.copy_(result.view(place.shape))


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """One tensor over the memory of all, if each begins where the one before ends, in the same storage, as with
    torch.chunk() and Tensor.split()."""
    if not tensors or not all(writable(tensor) for tensor in tensors):
        return None
    first, end = tensors[0].detach(), tensors[0].data_ptr()
    storage = first.untyped_storage().data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != end or tensor.untyped_storage().data_ptr() != storage:
            return None
        end += tensor.nbytes
    return first.as_strided([sum(tensor.numel() for tensor in tensors)], [1])


def packed(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All elements one after the other; a single contiguous tensor as it is."""
    if len(tensors) == 1:
        return dense(tensors[0]).view(-1)
    whole = joined(tensors)
    if whole is not None:
        return whole
    return torch.cat([dense(tensor).view(-1) for tensor in tensors])


def unpack(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            if tensor.data_ptr() != part.data_ptr():
                tensor.detach().copy_(part.view(tensor.shape))
