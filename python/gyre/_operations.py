"""The words of the engine's operations: their kinds and reductions, for every framework."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """The numbers of gyre/engine/request.h."""

    ALLREDUCE = 1
    BROADCAST = 2
    ALLGATHER = 3
    REDUCESCATTER = 4
    ALLTOALL = 5
    BARRIER = 6

    def __init__(self, _: int) -> None:
        self.word = self._name_.lower()  # Enum's own `name` property takes longer than the rest of a small call.


class ReduceOperation(IntEnum):
    """How contributions become one value; the numbers of gyre/collectives/data_type.h."""

    SUM = 0
    AVERAGE = 1
    MIN = 2
    MAX = 3
    PRODUCT = 4
    ADASUM = 100  # Composed of other operations: the engine does not know it.


class Reduction(NamedTuple):
    """scale · (x0 ∘ x1 ∘ …): the operation and its factors."""

    operation: ReduceOperation = ReduceOperation.AVERAGE
    prescale: float = 1.0
    postscale: float = 1.0


SUM = Reduction(ReduceOperation.SUM)
