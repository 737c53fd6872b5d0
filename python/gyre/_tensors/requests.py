"""The engine's requests, made of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import torch

from gyre._tensors.memory import DATA_TYPE_NUMBERS, memory_of
from gyre.core import _core

# Of memory that the ranks of this host can map: its serial, a descriptor, the serials that are in use. See
# collectives::PeerMappedBuffer.
PeerMapped = tuple[int, int, Sequence[int]]
NOT_PEER_MAPPED: PeerMapped = (0, -1, ())


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


def make_request(
    kind: Kind,
    name: str,
    like: torch.Tensor,
    shape: Sequence[int],
    *,
    source: torch.Tensor | None = None,
    target: torch.Tensor | None = None,
    reduction: Reduction = SUM,
    root: int = 0,
    splits: Sequence[int] = (),
    expected_splits: Sequence[int] = (),
    transient: bool = True,
    peer_mapped: PeerMapped = NOT_PEER_MAPPED,
) -> _core.Request:
    """A request with the type of `like`. `source` and `target` are contiguous, and must stay alive until the operation
    is done. `transient`: the name comes from a counter, so the engine need not learn it."""
    return _core.Request(
        kind=kind,
        name=name,
        data_type=DATA_TYPE_NUMBERS[like.dtype],
        shape=list(shape),
        input=memory_of(source) if source is not None else (0, 0),
        output=memory_of(target) if target is not None else (0, 0),
        operation=reduction.operation,
        prescale=reduction.prescale,
        postscale=reduction.postscale,
        root=root,
        splits=list(splits),
        expected_splits=list(expected_splits),
        transient=transient,
        peer_mapped=peer_mapped,
    )
