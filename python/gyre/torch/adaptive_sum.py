"""Adasum: a sum of gradients that counts their common part only once.

adasum(a, b) = (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b: the sum where they are orthogonal, the average where they are
equal. More than two are combined in pairs of neighbours, then pairs of these, and so on; a tensor without a partner
waits for the next round, so any number of ranks works. Source: Maleki et al., "Scaling Distributed Training with
Adaptive Summation", MLSys 2021. Every rank gathers all contributions and computes the same bits; that costs the memory
and the bytes of an allgather.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gyre._operations import Kind, Reduction
from gyre._runtime import Runtime
from gyre._tensors.memory import DATA_TYPE_NUMBERS, dense, memory_of
from gyre.core import _core
from gyre.errors import InvalidArgumentError
from gyre.torch._submissions import Batch, OneTimeName, describe, gathering_submission
from gyre.torch.handle import Handle


def combine(
    contributions: Sequence[torch.Tensor],
    prescale: float = 1.0,
    postscale: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """The adaptive sum of tensors of one size, made in float64 whatever the thread's floating-point state, in a flat
    tensor of `dtype`. Pure."""
    own = [dense(tensor) for tensor in contributions]
    result = torch.empty(own[0].numel(), dtype=dtype, device="cpu")
    _core.adaptive_sum(
        result=memory_of(result),
        result_type=DATA_TYPE_NUMBERS[dtype],
        contributions=[memory_of(tensor) for tensor in own],
        data_type=DATA_TYPE_NUMBERS[own[0].dtype],
        prescale=prescale,
        postscale=postscale,
    )
    return result


def adasum(
    runtime: Runtime,
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: Reduction,
    *,
    in_place: bool,
    one: bool,
) -> Handle:
    """A handle for the list of results, or (`one`) for the only one. Floating-point tensors only."""
    stem = name if name is not None else OneTimeName(f"adasum.noname.{runtime.next_number('adasum')}")
    batch = Batch(runtime)
    for index, tensor in enumerate(tensors):
        if not tensor.dtype.is_floating_point:
            raise InvalidArgumentError(f"{describe(Kind.ALLREDUCE, name)}: op=Adasum needs floating-point tensors")
        member = type(stem)(f"{stem}.adasum.{index}")
        # The message includes the shape, so that a difference between ranks is reported.
        submission = gathering_submission(runtime, Kind.ALLGATHER, tensor.unsqueeze(0), member)
        submission.finish = _finish(tensor, submission.finish, reduction, in_place)
        batch.submissions.append(submission)
    handle = batch.submit()
    if not one:
        return handle
    return Handle(runtime, [], None, lambda _: handle.wait()[0], before=handle)


def _finish(tensor: torch.Tensor, gathered: Any, reduction: Reduction, in_place: bool) -> Any:
    def finish(handle: _core.Handle) -> torch.Tensor:
        rows, _ = gathered(handle)
        result = combine(list(rows), reduction.prescale, reduction.postscale, tensor.dtype).reshape(tensor.shape)
        if not in_place:
            return result
        with torch.no_grad():
            tensor.copy_(result)
        return tensor

    return finish
