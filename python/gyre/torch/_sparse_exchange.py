"""Gradients of which only a few rows are there (an embedding's, with sparse=True): only those rows travel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gyre._runtime import Runtime
from gyre.torch._requests import OneTimeName, ReduceOperation, Reduction, allreduce_submission, run_one
from gyre.torch.sparse import sparse_allreduce


def agree_which_are_sparse(runtime: Runtime, name: str, parameters: Sequence[torch.Tensor]) -> list[bool]:
    """For each parameter whether any rank has a sparse gradient of it. Collective."""
    flags = torch.tensor([p.grad is not None and p.grad.is_sparse for p in parameters], dtype=torch.uint8)
    operation = Reduction(ReduceOperation.MAX)
    anywhere = run_one(runtime, allreduce_submission(runtime, flags, None, OneTimeName(name), operation))
    return [bool(flag) for flag in anywhere.tolist()]


class SparseExchange:
    """Of the parameters of one optimizer whose gradients are sparse; used as GradientExchange is."""

    def __init__(self, runtime: Runtime, reduction: Reduction) -> None:
        self._runtime = runtime
        self._reduction = reduction
        self._parameters: dict[int, tuple[str, torch.Tensor]] = {}

    def add(self, name: str, parameter: torch.Tensor) -> None:
        self._parameters[id(parameter)] = (name, parameter)

    def __contains__(self, parameter: torch.Tensor) -> bool:
        return id(parameter) in self._parameters

    def name_of(self, parameter: torch.Tensor) -> str | None:
        """None for one that is not among them."""
        return self._parameters.get(id(parameter), (None, None))[0]

    def run(self, stem: str) -> None:
        """Collective: afterwards every parameter's `grad` is the reduced one. A rank without one adds no rows. `stem`:
        of the operations' names, the same on all ranks."""
        under_way = [
            (parameter, sparse_allreduce(self._runtime, _rows_of(parameter), f"{stem}.{name}", self._reduction))
            for name, parameter in self._parameters.values()
            if parameter.requires_grad
        ]
        for parameter, handle in under_way:
            parameter.grad = handle.wait()


def _rows_of(parameter: torch.Tensor) -> torch.Tensor:
    gradient = parameter.grad
    if gradient is None:
        nowhere = torch.zeros((1, 0), dtype=torch.int64)
        nothing = torch.zeros((0, *parameter.shape[1:]), dtype=parameter.dtype)
        return torch.sparse_coo_tensor(nowhere, nothing, parameter.shape, check_invariants=True)
    return gradient if gradient.is_sparse else gradient.to_sparse(1)
