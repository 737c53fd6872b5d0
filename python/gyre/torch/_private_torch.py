"""Names of torch that it does not promise to keep, each with a check of what it answers.

Where one is missing or answers otherwise, what stands in for it is slower and gives the same results.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from itertools import count

import torch


def _holders_are_counted() -> bool:
    """Whether everything that shares a tensor's memory shows in the counts of references to the tensor and to its
    storage, in Python and in C++, and shows no more once it is gone."""
    tensor = torch.zeros(2)
    storage = tensor.untyped_storage()
    address = storage._cdata

    def counts() -> int:
        in_python = sys.getrefcount(tensor) + sys.getrefcount(storage)
        return int(in_python + tensor._use_count() + torch._C._storage_Use_Count(address))  # type: ignore[attr-defined]

    alone = counts()
    sharers: list[Callable[[torch.Tensor], object]] = [
        lambda it: it,
        torch.Tensor.detach,
        torch.Tensor.numpy,
        torch.Tensor.untyped_storage,
        torch.Tensor.__dlpack__,
        torch.utils.dlpack.from_dlpack,
    ]
    for make in sharers:
        sharer = make(tensor)
        shared = counts()
        del sharer
        if shared <= alone or counts() != alone:
            return False
    return True


def probe(check: Callable[[], bool]) -> bool:
    """Whether `check` passes; a missing name fails it."""
    try:
        return check()
    except (AttributeError, TypeError, RuntimeError):
        return False


HOLDERS_ARE_COUNTED = probe(_holders_are_counted)

if HOLDERS_ARE_COUNTED:
    tensor_use_count: Callable[[torch.Tensor], int] = torch.Tensor._use_count  # type: ignore[attr-defined]
    storage_use_count: Callable[[int], int] = torch._C._storage_Use_Count

    def storage_address(storage: torch.UntypedStorage) -> int:
        """For storage_use_count(), while the storage lives."""
        return int(storage._cdata)

else:
    _never_the_same = count()
    warnings.warn(
        f"torch {torch.__version__} does not say whether a tensor's memory is shared: gyre.torch copies each step's "
        "gradients once more, in case somebody has kept them",
        stacklevel=2,
    )

    def tensor_use_count(tensor: torch.Tensor) -> int:  # noqa: ARG001
        """Never the same: somebody may hold it."""
        return next(_never_the_same)

    def storage_use_count(address: int) -> int:  # noqa: ARG001
        return 0

    def storage_address(storage: torch.UntypedStorage) -> int:  # noqa: ARG001
        return 0
