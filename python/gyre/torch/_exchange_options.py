"""The options that DistributedOptimizer passes to the exchange of its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gyre._job.compression import Compressor, wire_format_of
from gyre._operations import Reduction

# Advice for gradients that came through another optimizer's loss, or of a skipped step.
GRADIENTS_NOT_WANTED = (
    "Where another optimizer's loss brought these gradients (a GAN's), call requires_grad_(False) on their parameters "
    "before its backward(); to leave out a step, on every rank: optimizer.synchronize(), then optimizer.zero_grad()."
)


@dataclass
class ExchangeOptions:
    """The arguments of DistributedOptimizer. `sparse_results`: all gradients are returned as sparse tensors
    (SparseAdam)."""

    reduction: Reduction
    compression: type[Compressor]
    error_feedback: bool
    passes_per_step: int
    end_in_backward: bool  # If the first backward() produces all gradients.
    sparse_as_dense: bool
    sparse_results: bool
    divide_by_contributors: bool  # An average is over the ranks that have not joined.
    groups: Mapping[int, int]  # By a parameter's id: parameters that are exchanged together, in a bucket of their own.
    unequal_replicas: str  # See FirstStep.

    @property
    def in_own_type(self) -> bool:
        """Whether gradients are in the arena unchanged: the engine narrows them when they leave the host."""
        return wire_format_of(self.compression) is not None
