"""Gradients with only a few rows (an embedding's, with sparse=True): only those rows are sent."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gyre._operations import ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre.torch._submissions import OneTimeName, allreduce_submission, run_one
from gyre.torch.sparse import sparse_allreduce


class SparseExchange:
    """The exchange of one optimizer's parameters with sparse gradients; used like GradientExchange."""

    def __init__(self, runtime: Runtime, reduction: Reduction, stem: str) -> None:
        """`stem`: of the operations' names, the same on all ranks."""
        self._stem = stem
        self._runtime = runtime
        self._reduction = reduction
        self._parameters: dict[int, tuple[str, torch.Tensor]] = {}

    def choose_among(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Adds the parameters that have a sparse gradient on any rank now. Collective."""
        are_sparse = [p.grad is not None and p.grad.is_sparse for _, p in parameters]
        flags = torch.tensor(are_sparse, dtype=torch.uint8, device="cpu")
        operation = Reduction(ReduceOperation.MAX)
        anywhere = run_one(
            self._runtime, allreduce_submission(self._runtime, flags, None, OneTimeName(self._stem), operation)
        )
        for (name, parameter), is_sparse in zip(parameters, anywhere.tolist(), strict=True):
            if is_sparse:
                self._parameters[id(parameter)] = (name, parameter)

    def __contains__(self, parameter: torch.Tensor) -> bool:
        return id(parameter) in self._parameters

    def name_of(self, parameter: torch.Tensor) -> str | None:
        """None for a parameter that is not among them."""
        return self._parameters.get(id(parameter), (None, None))[0]

    def run(self) -> None:
        """Collective: afterwards every parameter's `grad` is the reduced one. A rank without one adds no rows."""
        under_way = [
            (parameter, sparse_allreduce(self._runtime, _rows_of(parameter), f"{self._stem}.{name}", self._reduction))
            for name, parameter in self._parameters.values()
            if parameter.requires_grad
        ]
        for parameter, handle in under_way:
            parameter.grad = handle.wait()


def _rows_of(parameter: torch.Tensor) -> torch.Tensor:
    gradient = parameter.grad
    if gradient is None:
        nowhere = torch.zeros((1, 0), dtype=torch.int64, device=parameter.device)
        nothing = torch.zeros((0, *parameter.shape[1:]), dtype=parameter.dtype, device=parameter.device)
        return torch.sparse_coo_tensor(
            nowhere, nothing, parameter.shape, device=parameter.device, check_invariants=True
        )
    return gradient if gradient.is_sparse else gradient.to_sparse(1)
