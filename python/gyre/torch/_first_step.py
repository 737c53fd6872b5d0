"""What the ranks tell each other once, when an optimizer's first gradients are there: whether the exchange may end with
backward(), and whether they have started from the same parameters."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch

from gyre._program_position import stacklevel_of_program
from gyre._runtime import Runtime, current
from gyre._tensors.memory import dense, memory_of
from gyre._tensors.requests import Kind, ReduceOperation, Reduction
from gyre.core import _core
from gyre.errors import InvalidArgumentError, MismatchError
from gyre.torch._submissions import allreduce_submission, gathering_submission, submit_one
from gyre.torch.handle import Handle

# From lenient to strict; where the ranks were given different ones, the most lenient counts.
UNEQUAL_REPLICAS = ("allow", "warn", "error")


def check_word(unequal_replicas: str) -> None:
    """InvalidArgumentError for one that is not in UNEQUAL_REPLICAS."""
    if unequal_replicas not in UNEQUAL_REPLICAS:
        raise InvalidArgumentError(
            f"unequal_replicas must be one of {', '.join(map(repr, UNEQUAL_REPLICAS))}, not {unequal_replicas!r}"
        )


class Replica(NamedTuple):
    """A parameter of this rank."""

    name: str
    parameter: torch.Tensor
    has_gradient: bool  # In the first step. One that no rank computes is not kept equal, and need not be.


class FirstStep:
    """Of one optimizer, on this rank."""

    def __init__(self, runtime: Runtime, unequal_replicas: str) -> None:
        """`unequal_replicas`: one of UNEQUAL_REPLICAS."""
        self._runtime = runtime
        self._strictness = UNEQUAL_REPLICAS.index(unequal_replicas)
        self._hashes: list[int] = []
        self._compared = False
        # Under way; kept here, because Ctrl-C may end the wait for them.
        self._agreement: Handle | None = None
        self._comparison: Handle | None = None

    def agree(self, stem: str, replicas: Sequence[Replica], *, complete: bool) -> bool:
        """Whether `complete` is true on every rank. Collective, with the same names of parameters in the same order.

        A hash of all parameters rides along. Where it differs, rank 0 warns of the first parameter that does, or all
        ranks raise MismatchError, whose other outcome is lost then: call it again for that.
        """
        if self._agreement is None:
            self._agreement = self._submit_agreement(stem, replicas, complete=complete)
        all_complete, strictness, lowest, inverse_of_highest = self._agreement.wait().tolist()
        if strictness > 0 and lowest != ~inverse_of_highest and not self._compared:
            self._compare(stem, replicas, raises=strictness == UNEQUAL_REPLICAS.index("error"))
        return bool(all_complete)

    def _compare(self, stem: str, replicas: Sequence[Replica], *, raises: bool) -> None:
        if self._comparison is None:
            self._comparison = self._submit_comparison(stem, replicas)
        problem = _difference(replicas, self._comparison.wait()[0])
        self._compared = True  # Whatever it was is said once.
        if problem is not None and raises:
            raise MismatchError(problem)
        if problem is not None and self._runtime.rank == 0:
            warnings.warn(problem, RuntimeWarning, stacklevel=stacklevel_of_program())

    def _submit_agreement(self, stem: str, replicas: Sequence[Replica], *, complete: bool) -> Handle:
        """The lowest of each number: of the hash and of its inverse, so that both ends are known."""
        if self._strictness > 0:
            self._hashes = [_hash_of(replica.parameter) for replica in replicas]
        hashes = torch.tensor(self._hashes, dtype=torch.int64)
        own = _hash_of(hashes)
        numbers = torch.tensor([int(complete), self._strictness, own, ~own], dtype=torch.int64)
        submission = allreduce_submission(self._runtime, numbers, None, stem, Reduction(ReduceOperation.MIN))
        return submit_one(self._runtime, submission)

    def _submit_comparison(self, stem: str, replicas: Sequence[Replica]) -> Handle:
        """Every rank's hashes, and which parameters have a gradient there; first what the job calls the rank."""
        has_gradient = [int(replica.has_gradient) for replica in replicas]
        table = torch.tensor([[current().rank, *self._hashes], [0, *has_gradient]], dtype=torch.int64)
        submission = gathering_submission(self._runtime, Kind.ALLGATHER, table.unsqueeze(0), f"{stem}.replicas")
        return submit_one(self._runtime, submission)


def _hash_of(tensor: torch.Tensor) -> int:
    """Of its values, as an int64 can hold it."""
    values = dense(tensor)
    number = _core.hash_memory(memory_of(values))
    return number - (1 << 64) if number >> 63 else number


def _difference(replicas: Sequence[Replica], tables: torch.Tensor) -> str | None:
    names, hashes, has_gradient = tables[:, 0, 0], tables[:, 0, 1:], tables[:, 1, 1:].any(0)
    differs = (hashes != hashes[0]).any(0) & has_gradient
    if not differs.any():
        return None
    first = int(differs.nonzero()[0])
    ranks = names[hashes[:, first] != hashes[0, first]].tolist()
    where = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    count = f"{int(differs.sum())} of {int(has_gradient.sum())} parameters differ"
    return (
        f"the ranks do not start with the same parameters: '{replicas[first].name}' on {where} is not what it is on "
        f"rank {int(names[0])} ({count}). Averaged gradients change all replicas alike, so they will never agree. Call "
        "broadcast_parameters(model.state_dict(), root_rank=0) before the first step, or see that all ranks load "
        "the same checkpoint or use the same seed. (DistributedOptimizer(unequal_replicas='error') makes this an "
        "error, 'allow' says that it is meant.)"
    )
