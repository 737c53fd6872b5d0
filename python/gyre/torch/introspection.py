"""What this build can do, in the questions that Horovod's users ask. The answers are true: Gyre moves tensors of host
memory over shared memory and sockets of its own, and is built with none of the libraries asked for here."""

from __future__ import annotations

from gyre.errors import UnsupportedError


def mpi_threads_supported() -> bool:
    """UnsupportedError (a ValueError), as of a Horovod without MPI. (Gyre's functions may be called from several
    threads.)"""
    raise UnsupportedError(
        "Gyre does not use MPI, so there is no answer for its threads; a script may use mpi4py as if Gyre were not "
        "there"
    )


def mpi_enabled() -> bool:
    """False: the ranks do not talk over MPI, also when mpirun has started them."""
    return False


def mpi_built() -> bool:
    """False: see mpi_enabled()."""
    return False


def gloo_enabled() -> bool:
    """False: Gyre has its own transport."""
    return False


def gloo_built() -> bool:
    """False: Gyre has its own transport."""
    return False


def nccl_built() -> int:
    """0: no NCCL; tensors live in host memory."""
    return 0


def ddl_built() -> bool:
    """False."""
    return False


def ccl_built() -> bool:
    """False."""
    return False


def cuda_built() -> bool:
    """False: tensors live in host memory."""
    return False


def rocm_built() -> bool:
    """False: tensors live in host memory."""
    return False
