"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch

from gyre._job.process_sets import ProcessSet, global_process_set, runtime_of
from gyre._operations import ReduceOperation
from gyre._torch_private import BatchNorm
from gyre.errors import InvalidArgumentError
from gyre.torch._submissions import OneTimeName
from gyre.torch.asynchronous import allgather_async, allreduce_async


class SyncBatchNorm(BatchNorm):
    """torch.nn.BatchNorm1d, 2d and 3d in one, with mean and variance over the batches of all ranks in training (and
    always, if track_running_stats is off).

    Ranks can have batches of different sizes. The gradients of weight and bias are this rank's own; exchange them like
    all others (DistributedOptimizer).
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise InvalidArgumentError(f"expected at least 2 dimensions (got {input.dim()})")
        if input.shape[1] != self.num_features:
            raise InvalidArgumentError(f"expected {self.num_features} channels (got {input.shape[1]})")
        if not input.is_floating_point():
            raise InvalidArgumentError(f"expected floating-point numbers (got {input.dtype})")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        of_the_batch = self.training or not self.track_running_stats
        if not of_the_batch or runtime_of(self.process_set).size == 1:
            return super().forward(input)
        moments = _gathered_moments(input, self.process_set)
        if self.training and self.track_running_stats:
            self._track(moments)
        mean, variance = moments.mean.to(input.dtype), moments.variance
        inverse = torch.rsqrt(variance + self.eps).to(input.dtype)
        normalized = _Normalize.apply(input, mean, inverse, moments.count, self.process_set)  # type: ignore[no-untyped-call]
        result: torch.Tensor = normalized
        if self.affine:
            result = (normalized * _along(self.weight, input) + _along(self.bias, input)).to(input.dtype)
        return result

    def _track(self, moments: _Moments) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = moments.variance * (moments.count / max(moments.count - 1, 1))
        self.running_mean.lerp_(moments.mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)


class _Moments:
    """Statistics of all ranks' values, in float64."""

    def __init__(self, count: float, mean: torch.Tensor, variance: torch.Tensor) -> None:
        self.count, self.mean, self.variance = count, mean, variance


def _along(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """One value per channel, in the shape that multiplies `like`."""
    return values.view(1, -1, *([1] * (like.dim() - 2)))


def _others(tensor: torch.Tensor) -> list[int]:
    """All dimensions except the channels'."""
    return [dimension for dimension in range(tensor.dim()) if dimension != 1]


def _gathered_moments(input: torch.Tensor, process_set: ProcessSet) -> _Moments:
    """Each rank's count, mean and sum of squared deviations, combined without loss of precision (Chan et al., 1983)."""
    values = input.detach().to(torch.float64)
    count = values.numel() // values.shape[1]
    mean = values.mean(_others(values)) if count else values.new_zeros(values.shape[1])
    distances = ((values - _along(mean, values)) ** 2).sum(_others(values))
    own = torch.cat([values.new_tensor([float(count)]), mean, distances]).unsqueeze(0)
    rows: torch.Tensor = allgather_async(own, process_set=process_set).wait()
    channels = values.shape[1]
    counts, means, sums = rows[:, :1], rows[:, 1 : channels + 1], rows[:, channels + 1 :]
    total = float(counts.sum())
    if total == 0:
        raise InvalidArgumentError("SyncBatchNorm: the batches of all ranks are empty")
    whole_mean = (counts * means).sum(0) / total
    whole = sums.sum(0) + (counts * (means - whole_mean) ** 2).sum(0)
    return _Moments(total, whole_mean, whole / total)


class _Normalize(torch.autograd.Function):
    """(x - mean) · inverse, where mean and inverse depend on all ranks' x."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, mean: torch.Tensor, inverse: torch.Tensor, count: float, process_set: ProcessSet
    ) -> torch.Tensor:
        # Here, in the program's order: on several devices, the nodes of backward() run in a thread for each.
        ctx.name = OneTimeName(f"batch_norm.{runtime_of(process_set).next_number('batch_norm')}")
        normalized = (x - _along(mean, x)) * _along(inverse, x)
        ctx.save_for_backward(normalized, inverse)
        ctx.count, ctx.process_set = count, process_set
        return normalized

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        normalized, inverse = ctx.saved_tensors
        gradient = gradients[0]
        dimensions = _others(gradient)
        own = torch.stack([gradient.sum(dimensions), (gradient * normalized).sum(dimensions)])
        sums = (
            allreduce_async(own, name=ctx.name, op=ReduceOperation.SUM, process_set=ctx.process_set).wait() / ctx.count
        )
        inner = gradient - _along(sums[0], gradient) - normalized * _along(sums[1], gradient)
        return inner * _along(inverse, gradient), None, None, None, None
