"""Compressors of the user's own do in DistributedOptimizer what Horovod's interface promises: each gradient of each
step is compressed once, the ranks' tensors are added up as they travel, and each rank turns the sum back by the context
of its own gradient."""

from typing import Any, ClassVar

import gyre.torch as hvd
import pytest
import torch
from checks import each, run_each
from gyre.errors import InvalidArgumentError, MismatchError
from torch import nn

STEPS = 4
SHAPES = [(3, 4), (5,), (), (2, 3, 2), (7, 1)]


class ByMagnitude(hvd.Compressor):
    """The context depends on the data."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        largest = tensor.abs().max()
        return tensor / largest.clamp(min=1e-9), largest

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor * context


class Flattened(hvd.Compressor):
    """Another shape and type, and a context of several pieces; all tensors alike in type and shape."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor.double().flatten()[::2], (tensor.shape, tensor.numel(), tensor.sum())

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        shape, count, total = context
        return (tensor.repeat_interleave(2)[:count] + total).view(shape).float()


class Shifted(hvd.Compressor):
    """Zeros do not travel as zeros; the gradient itself is written over."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor.add_(1.0), 2.0

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor.sub_(context)


class Counting(hvd.Compressor):
    """State of the class: how often it was called."""

    calls: ClassVar[list[str]] = []

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        cls.calls.append("compress")
        return tensor * len(cls.calls), len(cls.calls)

    @classmethod
    def decompress(cls, tensor: torch.Tensor, context: Any) -> torch.Tensor:
        cls.calls.append("decompress")
        return tensor / context


def gradients_of(rank: int, step: int, count: int) -> list[torch.Tensor | None]:
    """Of other magnitudes on every rank and in every step; one is missing on the last rank in odd steps."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    scale = 10.0 ** (rank - step)
    gradients = [torch.randn(SHAPES[index], generator=generator) * scale for index in range(count)]
    return [None if index == 1 and rank > 0 and step % 2 else gradient for index, gradient in enumerate(gradients)]


def as_horovod(compression: type[hvd.Compressor], op: Any, step: int, count: int) -> list[torch.Tensor]:
    """What this rank's gradients are after the exchange, computed by this rank alone."""
    results = []
    for index in range(count):
        travelling, contexts = [], []
        for rank in range(hvd.size()):
            gradient = gradients_of(rank, step, count)[index]
            wire, context = compression.compress(torch.zeros(SHAPES[index]) if gradient is None else gradient)
            travelling.append(wire)
            contexts.append(context)
        total = travelling[0].clone()
        for wire in travelling[1:]:
            total = total + wire
        if op == hvd.Average:
            total = total / hvd.size()
        results.append(compression.decompress(total, contexts[hvd.rank()]))
    return results


def loss_of(parameters: list[nn.Parameter], step: int) -> torch.Tensor:
    gradients = gradients_of(hvd.rank(), step, len(parameters))
    return sum((p * g).sum() for p, g in zip(parameters, gradients, strict=True) if g is not None)


def every_gradient_keeps_its_context() -> None:
    for compression in (ByMagnitude, Flattened, Shifted, hvd.Compression.none):
        for op in (hvd.Average, hvd.Sum):
            for groups in (None, 2):
                parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
                optimizer = hvd.DistributedOptimizer(
                    torch.optim.SGD(parameters, lr=1.0), compression=compression, op=op, groups=groups
                )
                for step in range(STEPS):
                    optimizer.zero_grad(set_to_none=step != 2)
                    loss_of(parameters, step).backward()
                    optimizer.synchronize()
                    expected = as_horovod(compression, op, step, len(parameters))
                    for index, (parameter, right) in enumerate(zip(parameters, expected, strict=True)):
                        assert torch.equal(parameter.grad, right), (compression, op, step, index)
                    with optimizer.skip_synchronize():
                        optimizer.step()


def each_gradient_is_compressed_once_per_step() -> None:
    """Also not when the optimizer is made: state of the class would see a gradient that never was."""
    parameters = [nn.Parameter(torch.zeros(3)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=1.0), compression=Counting, backward_passes_per_step=2
    )
    assert Counting.calls == []
    for step in range(1, 4):
        for _ in range(2):
            sum(parameter.sum() for parameter in parameters).backward()
        optimizer.step()
        assert Counting.calls.count("compress") == Counting.calls.count("decompress") == 2 * step
        optimizer.zero_grad()
    Counting.calls.clear()


class Warming(hvd.Compressor):
    """Sends halves from the second step on."""

    steps = 0

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        cls.steps += 1
        return (tensor if cls.steps == 1 else tensor.half()), None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:  # noqa: ARG004
        return tensor.float()


class OfTheRank(hvd.Compressor):
    """Sends another shape on every rank."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor[: 1 + hvd.rank()], None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:  # noqa: ARG004
        return tensor


class Shrinking(hvd.Compressor):
    """Does not give back what it took."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor[:1], None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:  # noqa: ARG004
        return tensor


def compressors_that_cannot_work() -> None:
    """One clear error each, not another gradient."""

    def made(compression: type[hvd.Compressor]) -> tuple[nn.Parameter, torch.optim.Optimizer]:
        parameter = nn.Parameter(torch.zeros(5))
        return parameter, hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), compression=compression)

    parameter, optimizer = made(Warming)
    parameter.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(InvalidArgumentError, match=r"float16\[5\], but float32\[5\] in the first step"):
        parameter.sum().backward()
    parameter, optimizer = made(Shrinking)
    with pytest.raises(InvalidArgumentError, match=r"must return float32\[5\], not float32\[1\]"):
        parameter.sum().backward()
    parameter, optimizer = made(OfTheRank)
    with pytest.raises(MismatchError, match=r"\[1\]"):
        parameter.sum().backward()


EVERYTHING = [
    every_gradient_keeps_its_context,
    each_gradient_is_compressed_once_per_step,
    compressors_that_cannot_work,
]


def body_everything() -> None:
    torch.set_num_threads(1)
    hvd.init()
    run_each(EVERYTHING)


@pytest.mark.parametrize("size", [2, 3])
@each(EVERYTHING)
def test_a_compressor_sees_each_gradient_and_gets_its_context_back(run_checks, size, check):
    run_checks(size, body_everything, check)
