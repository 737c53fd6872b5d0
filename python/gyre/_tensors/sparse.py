"""Sums of sparse (COO) tensors: only their entries are sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gyre._tensors.memory import dense, tensor_over
from gyre._tensors.requests import Kind, make_request
from gyre.core import _core
from gyre.errors import MismatchError


class SparseSum:
    """One rank's side of a sum: three allgathers, of the indices, the values and the shapes."""

    NAMES = ("indices", "values", "shapes")

    def __init__(self, tensor: torch.Tensor, action: str, known: Callable[[torch.Tensor, str], torch.Tensor]) -> None:
        """`known`: converts the values to a type that the engine knows, with the same number of rows, or raises."""
        own = tensor.detach().coalesce()
        values = own.values()
        self._action = action
        self._shape = own.shape
        self._dtype = values.dtype
        # The shape is sent too: otherwise an entry outside another rank's shape would go unnoticed.
        shape = torch.tensor([list(own.shape)], dtype=torch.int64)
        self._memory = [dense(own.indices().t()), dense(known(values, action)), shape]

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

    def total(
        self, handles: Sequence[_core.Handle], prescale: float = 1.0, postscale: float = 1.0, divisor: int = 1
    ) -> torch.Tensor:
        """From completed handles: the sum of the values times `prescale`, coalesced, times `postscale`, divided by
        `divisor`. Values at one index are added in rank order, those of 16-bit floats in float32. MismatchError, on
        every rank, if the ranks' shapes differ."""
        indices, values, shapes = (
            tensor_over(memory, part.dtype, shape)
            for part, (memory, shape, _) in zip(self._memory, map(_core.Handle.take_result, handles), strict=True)
        )
        if not bool((shapes == shapes[0]).all()):
            raise MismatchError(f"{self._action}: the ranks' shapes differ: {shapes.tolist()}")
        if values.dtype != self._dtype:
            values = torch.view_as_complex(values) if self._dtype.is_complex else values.view(self._dtype)
        if values.dtype in (torch.float16, torch.bfloat16):
            values = values.to(torch.float32)
        if prescale != 1.0:
            values = (values * prescale).to(values.dtype)  # Integers lose their fractions.
        summed = torch.sparse_coo_tensor(indices.t(), values, self._shape, check_invariants=True).coalesce()
        if postscale == divisor:
            return summed.to(self._dtype).coalesce()
        if postscale != 1.0:
            summed = summed * postscale
        if divisor != 1:
            summed = summed / divisor
        return summed.to(self._dtype).coalesce()
