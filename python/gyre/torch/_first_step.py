"""What the ranks agree on once, when an optimizer's first gradients are there: whether the exchange can end with
backward(), and whether they have started from the same parameters."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch

from gyre._operations import Kind, ReduceOperation, Reduction
from gyre._program_position import stacklevel_of_program
from gyre._runtime import Runtime, current
from gyre._tensors.memory import dense, memory_of
from gyre.core import _core
from gyre.errors import InvalidArgumentError, MismatchError
from gyre.torch._submissions import allreduce_submission, gathering_submission, submit_one
from gyre.torch.handle import Handle

# From lenient to strict; if the ranks were given different ones, the most lenient counts.
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
    has_gradient: bool  # In the first step. A parameter without any gradient need not be equal.


class FirstStep:
    """The first step of one optimizer, on this rank."""

    def __init__(self, runtime: Runtime, unequal_replicas: str) -> None:
        """`unequal_replicas`: one of UNEQUAL_REPLICAS."""
        self._runtime = runtime
        self._strictness = UNEQUAL_REPLICAS.index(unequal_replicas)
        self._hashes: list[int] = []
        self._compared = False
        self.in_buckets = False  # Whether the ranks' devices exchange the gradients.
        # In flight; kept here, because Ctrl-C can end the wait for them.
        self._agreement: Handle | None = None
        self._comparison: Handle | None = None

    def agree(self, stem: str, replicas: Sequence[Replica], *, complete: bool, in_buckets: bool = False) -> bool:
        """Whether `complete` is true on every rank; `in_buckets`, whether that one is. Collective, with the same
        names of parameters in the same order.

        A hash of all parameters is exchanged with it. If it differs, rank 0 warns about the first parameter that does,
        or all ranks raise MismatchError; the answer is then lost: call it again to get it.
        """
        if self._agreement is None:
            self._agreement = self._submit_agreement(stem, replicas, complete=complete, in_buckets=in_buckets)
        all_complete, all_in_buckets, strictness, lowest, inverse_of_highest = self._agreement.wait().tolist()
        self.in_buckets = bool(all_in_buckets)
        if strictness > 0 and lowest != ~inverse_of_highest and not self._compared:
            self._compare(stem, replicas, raises=strictness == UNEQUAL_REPLICAS.index("error"))
        return bool(all_complete)

    def _compare(self, stem: str, replicas: Sequence[Replica], *, raises: bool) -> None:
        if self._comparison is None:
            self._comparison = self._submit_comparison(stem, replicas)
        problem = _difference(replicas, self._comparison.wait()[0])
        self._compared = True  # It is reported only once.
        if problem is not None and raises:
            raise MismatchError(problem)
        if problem is not None and self._runtime.rank == 0:
            warnings.warn(problem, RuntimeWarning, stacklevel=stacklevel_of_program())

    def _submit_agreement(self, stem: str, replicas: Sequence[Replica], *, complete: bool, in_buckets: bool) -> Handle:
        """The lowest of each number: of the hash and of its inverse, so that both ends are known."""
        if self._strictness > 0:
            self._hashes = [_hash_of(replica.parameter) for replica in replicas]
        hashes = torch.tensor(self._hashes, dtype=torch.int64, device="cpu")
        own = _hash_of(hashes)
        flags = [int(complete), int(in_buckets)]
        numbers = torch.tensor([*flags, self._strictness, own, ~own], dtype=torch.int64, device="cpu")
        submission = allreduce_submission(self._runtime, numbers, None, stem, Reduction(ReduceOperation.MIN))
        return submit_one(self._runtime, submission)

    def _submit_comparison(self, stem: str, replicas: Sequence[Replica]) -> Handle:
        """Every rank's hashes, and which parameters have a gradient there; first its rank number in the job."""
        has_gradient = [int(replica.has_gradient) for replica in replicas]
        table = torch.tensor([[current().rank, *self._hashes], [0, *has_gradient]], dtype=torch.int64, device="cpu")
        submission = gathering_submission(self._runtime, Kind.ALLGATHER, table.unsqueeze(0), f"{stem}.replicas")
        return submit_one(self._runtime, submission)


def _hash_of(tensor: torch.Tensor) -> int:
    """A hash of its values that fits into an int64."""
    values = dense(tensor if tensor.is_cpu else tensor.detach().cpu())
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
        f"the ranks do not start with the same parameters: '{replicas[first].name}' on {where} differs from "
        f"rank {int(names[0])} ({count}). Averaged gradients change all replicas alike, so they will never agree. Call "
        "broadcast_parameters(model.state_dict(), root_rank=0) before the first step, or make sure that all ranks load "
        "the same checkpoint or use the same seed. (DistributedOptimizer(unequal_replicas='error') makes this an "
        "error, 'allow' accepts it.)"
    )
