"""Sums of sparse (COO) tensors: only their entries are sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from gyre._operations import SUM, Kind, Reduction
from gyre._tensors.memory import DATA_TYPE_NUMBERS, dense, memory_of, tensor_over
from gyre._tensors.requests import make_request
from gyre.core import _core
from gyre.errors import MismatchError


class SparseSum:
    """One rank's side of a sum: three allgathers, of the indices, the values and the shapes."""

    NAMES = ("indices", "values", "shapes")

    def __init__(
        self,
        tensor: torch.Tensor,
        parts: tuple[torch.Tensor, torch.Tensor],
        action: str,
        known: Callable[[torch.Tensor, str], torch.Tensor],
        reduction: Reduction,
        ranks: int,
    ) -> None:
        """`parts`: its indices and values, with several entries for one place if it has them. `known`: converts the
        values to a type that the engine reduces, with the same number of rows, or raises. InvalidArgumentError for a
        reduction that their type does not have."""
        own = tensor.detach()
        self._action = action
        self._reduction = reduction
        self._ranks = ranks
        self._shape = own.shape
        self._dtype = own.dtype
        indices, values = parts[0], dense(known(parts[1], action))
        _core.check_reduction(DATA_TYPE_NUMBERS[values.dtype], *reduction)
        if not own.is_coalesced():
            indices, values = _added_up(indices, values, own.shape[: own.sparse_dim()], SUM, 1)
        # The shape is sent too: otherwise an entry outside another rank's shape would go unnoticed.
        shape = torch.tensor([list(own.shape)], dtype=torch.int64, device="cpu")
        self._memory = [dense(indices.t()), values, shape]

    @property
    def memory(self) -> Sequence[torch.Tensor]:
        """The memory that must stay alive until the allgathers are done."""
        return self._memory

    def requests(self, names: Sequence[str], transient: bool) -> list[_core.Request]:
        """`names`: those of the three operations, which complete together (submit_group)."""
        return [
            make_request(Kind.ALLGATHER, name, part, part.shape, source=part, transient=transient)
            for name, part in zip(names, self._memory, strict=True)
        ]

    def total(self, handles: Sequence[_core.Handle]) -> torch.Tensor:
        """From completed handles: the reduction, coalesced. Values at one index are added in rank order. MismatchError,
        on every rank, if the ranks' shapes differ."""
        indices, values, shapes = (
            tensor_over(memory, part.dtype, shape)
            for part, (memory, shape, _) in zip(self._memory, map(_core.Handle.take_result, handles), strict=True)
        )
        if not bool((shapes == shapes[0]).all()):
            raise MismatchError(f"{self._action}: the ranks' shapes differ: {shapes.tolist()}")
        # Indices from other ranks, which may lie outside.
        torch.sparse_coo_tensor(
            indices.t(), self._in_own_type(values), self._shape, device="cpu", check_invariants=True
        )
        lengths = self._shape[: indices.shape[1]]
        summed_indices, summed = _added_up(indices.t(), values, lengths, self._reduction, self._ranks)
        return torch.sparse_coo_tensor(
            summed_indices,
            self._in_own_type(summed),
            self._shape,
            device="cpu",
            is_coalesced=True,
            check_invariants=True,
        )

    def _in_own_type(self, values: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(values) if self._dtype.is_complex else values


def _added_up(
    indices: torch.Tensor, values: torch.Tensor, lengths: Sequence[int], reduction: Reduction, ranks: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each index once, in order, with the reduction of its values, in theirs. `lengths`: of the sparse dimensions. Not
    by torch, whose sums depend on the thread's floating-point state."""
    place = torch.zeros(indices.shape[1], dtype=torch.int64, device="cpu")
    for index, length in zip(indices, lengths, strict=True):
        place = place * length + index
    found, places = torch.unique(place, return_inverse=True)
    summed = torch.empty([len(found), *values.shape[1:]], dtype=values.dtype, device="cpu")
    _core.add_rows(
        result=memory_of(summed),
        rows=memory_of(values),
        places=memory_of(places),
        row_bytes=math.prod(values.shape[1:]) * values.element_size(),
        data_type=DATA_TYPE_NUMBERS[values.dtype],
        operation=reduction.operation,
        prescale=reduction.prescale,
        postscale=reduction.postscale,
        ranks=ranks,
    )
    once = torch.empty([indices.shape[0], len(found)], dtype=torch.int64, device="cpu")
    once[:, places] = indices
    return once, summed
