"""How a rank's program joins the others, for Gyre and for each peer, as all benchmarks need it."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

import torch

_TIMEOUT = timedelta(seconds=300)


@dataclass(frozen=True)
class Ranks:
    """This process's rank, and the three operations that benchmarks need in addition to the measured one."""

    rank: int
    size: int
    native: Callable[[torch.Tensor], Any]  # A tensor in the form that `allreduce` takes, over the same memory.
    allreduce: Callable[[Any], object]  # A sum, in place.
    meet: Callable[[], None]  # A barrier.
    from_rank_0: Callable[[int], int]


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@contextmanager
def gyre_ranks() -> Iterator[Ranks]:
    import gyre.torch as hvd  # noqa: PLC0415 - imported only by programs that need it

    hvd.init()

    def from_rank_0(value: int) -> int:
        return int(hvd.broadcast(torch.tensor([value]), 0)[0])

    def allreduce(tensor: torch.Tensor) -> None:
        hvd.allreduce_(tensor, op=hvd.Sum)

    yield Ranks(hvd.rank(), hvd.size(), _as_it_is, allreduce, hvd.barrier, from_rank_0)
    hvd.shutdown()


def never_take_apart(process_group: object) -> None:
    """For torch's process groups over gloo. When the last reference to one is dropped, it waits for its threads
    while it holds the GIL, and they may need the GIL to release their last operation: on a busy machine the process
    hangs, or aborts. A group that is never destroyed ends with the process, which then has to `leave`."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(process_group))


def leave() -> NoReturn:
    """Ends a program that has used gloo, as its last action, with exit code 0 and without shutting the interpreter
    down: a gloo thread that requests the GIL after shutdown is ended in the middle of C++ code that must not throw,
    and the process aborts ("terminate called without an active exception"; 1 run in 40 on busy cores)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def find_rank_0() -> None:
    """With several hosts the backend gyre finds its own address by rank 0's."""
    rendezvous = os.environ.get("GYRE_RENDEZVOUS", "")
    if rendezvous.startswith("tcp:"):
        os.environ["MASTER_ADDR"] = rendezvous.removeprefix("tcp:").rpartition(":")[0]


@contextmanager
def gloo_ranks(store: str) -> Iterator[Ranks]:
    """torch.distributed's group, under `gyre run`; the ranks meet at the file `store`, which must not exist yet. The
    program has to `leave` afterwards."""
    import torch.distributed as dist  # noqa: PLC0415

    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=_TIMEOUT)
    never_take_apart(dist.group.WORLD)
    yield _ranks_of_torch(rank, size)
    dist.barrier()


@contextmanager
def distributed_ranks(store: str) -> Iterator[Ranks]:
    """torch.distributed's over Gyre, under `gyre run`; `store` as above."""
    import torch.distributed as dist  # noqa: PLC0415

    import gyre.distributed  # noqa: F401, PLC0415  The backend, also where the package is not installed.

    find_rank_0()
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group("gyre", init_method=f"file://{store}", rank=rank, world_size=size, timeout=_TIMEOUT)
    yield _ranks_of_torch(rank, size)
    dist.barrier()
    dist.destroy_process_group()


def _ranks_of_torch(rank: int, size: int) -> Ranks:
    import torch.distributed as dist  # noqa: PLC0415

    def from_rank_0(value: int) -> int:
        box = torch.tensor([value])
        dist.broadcast(box, 0)
        return int(box)

    return Ranks(rank, size, _as_it_is, dist.all_reduce, dist.barrier, from_rank_0)


@contextmanager
def openmpi_ranks() -> Iterator[Ranks]:
    """Open MPI's group, through mpi4py, under mpirun."""
    from mpi4py import MPI  # noqa: PLC0415

    world = MPI.COMM_WORLD

    def allreduce(array: Any) -> None:
        world.Allreduce(MPI.IN_PLACE, array)

    def from_rank_0(value: int) -> int:
        return int(world.bcast(value, root=0))

    yield Ranks(world.rank, world.size, lambda tensor: tensor.numpy(), allreduce, world.Barrier, from_rank_0)
