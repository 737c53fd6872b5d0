"""The engine's requests, made of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gyre._operations import SUM, Kind, Reduction
from gyre._tensors.memory import DATA_TYPE_NUMBERS, memory_of
from gyre.core import _core

# Of memory that the ranks of this host can map: its serial, a descriptor, the serials that are in use. See
# collectives::PeerMappedBuffer.
PeerMapped = tuple[int, int, Sequence[int]]
NOT_PEER_MAPPED: PeerMapped = (0, -1, ())


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
    elsewhere: bool = False,
) -> _core.Request:
    """A request with the type of `like`. `source` and `target` are contiguous, and must stay alive until the operation
    is done. `transient`: the name comes from a counter, so the engine need not learn it. `elsewhere`: something else
    than the engine carries it out."""
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
        elsewhere=elsewhere,
    )
