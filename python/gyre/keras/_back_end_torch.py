"""Keras on torch: always eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gyre._devices.staging import Landing, say_once, to_host, twin_of
from gyre._job.gradient_exchange import Gradient, Layout
from gyre._job.process_sets import ProcessSet
from gyre._operations import ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre._tensors.memory import DATA_TYPE_NUMBERS, dense, memory_of, tensor_over
from gyre.errors import UnsupportedError
from gyre.torch import _staged, differentiable


class TorchBackEnd:
    """See BackEnd."""

    def check_program(self) -> None:
        """Nothing."""

    def describe(self, name: str, tensor: torch.Tensor, group: int) -> Gradient:
        checked = _staged.check_tensor(tensor, f"gradient of '{name}'")
        return Gradient(name, DATA_TYPE_NUMBERS[checked.dtype], tuple(checked.shape), group)

    def reduce(self, layout: Layout, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        # Those of a device go through host memory, as in gyre.torch (ADR 114).
        twins = [tensor if tensor.is_cpu else twin_of(tensor) for tensor in tensors]
        outward = [(twin, tensor) for twin, tensor in zip(twins, tensors, strict=True) if twin is not tensor]
        if outward:
            say_once(outward[0][1].device.type)
        to_host(outward, "gradients")
        sources = [dense(twin) for twin in twins]
        layout.run([memory_of(source) for source in sources])
        # Copies: a program may keep its gradients, and the arena is written to again in the next step.
        reduced = [
            tensor_over(layout.memory(index), source.dtype, source.shape) for index, source in enumerate(sources)
        ]
        results, landing = [], []
        for place, source, tensor in zip(reduced, sources, tensors, strict=True):
            if tensor.is_cpu:
                results.append(place.clone())
            else:
                results.append(torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False))
                landing.append((source.copy_(place), results[-1]))
        Landing(landing).land()
        return results

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

    def outside_of_graphs(self) -> AbstractContextManager[None]:
        return nullcontext()
