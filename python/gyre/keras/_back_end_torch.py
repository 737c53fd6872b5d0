"""Keras on torch: always eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gyre._job.gradient_exchange import Gradient, Layout
from gyre._job.process_sets import ProcessSet
from gyre._operations import ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre._tensors.memory import DATA_TYPE_NUMBERS, check_tensor, dense, memory_of, tensor_over
from gyre.errors import UnsupportedError
from gyre.torch import differentiable


class TorchBackEnd:
    """See BackEnd."""

    def describe(self, name: str, tensor: torch.Tensor, group: int) -> Gradient:
        checked = check_tensor(tensor, f"gradient of '{name}'")
        return Gradient(name, DATA_TYPE_NUMBERS[checked.dtype], tuple(checked.shape), group)

    def reduce(self, layout: Layout, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        sources = [dense(tensor) for tensor in tensors]
        layout.run([memory_of(source) for source in sources])
        # Copies: a program may keep its gradients, and the arena is written to again in the next step.
        return [
            tensor_over(layout.memory(index), source.dtype, source.shape).clone()
            for index, source in enumerate(sources)
        ]

    def is_sparse(self, tensor: torch.Tensor) -> bool:
        return tensor.layout != torch.strided

    def to_dense(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to_dense() if self.is_sparse(tensor) else tensor

    def reduce_sparse(self, runtime: Runtime, tensor: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        del runtime, tensor, reduction
        raise UnsupportedError("sparse gradients on Keras's torch back end: pass sparse_as_dense=True")

    def multiply(self, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        return tensor * factor

    def zeros_like(self, variable: Any) -> torch.Tensor:
        return torch.zeros_like(variable.value, requires_grad=False)

    def sum_over_ranks(self, process_set: ProcessSet, tensor: torch.Tensor) -> torch.Tensor:
        return differentiable.allreduce([tensor], None, Reduction(ReduceOperation.SUM), process_set, one=True)[0]

    def conditionally(self, condition: Any, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        if bool(condition):
            then()
        else:
            otherwise()
