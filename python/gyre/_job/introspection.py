"""The features of this build, with Horovod's functions. The answers are truthful: Gyre moves tensors in host memory
over its own shared memory and sockets, and is built with none of the libraries that these functions name."""

from __future__ import annotations

from gyre.errors import UnsupportedError


def mpi_threads_supported() -> bool:
    """UnsupportedError (a ValueError), as in Horovod without MPI. (Gyre's functions can be called from several
    threads.)"""
    raise UnsupportedError(
        "Gyre does not use MPI, so it cannot tell whether MPI supports threads; a script can use mpi4py independently "
        "of Gyre"
    )


def mpi_enabled() -> bool:
    """False: the ranks do not communicate over MPI, even if mpirun has started them."""
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
    """0: no NCCL; tensors are in host memory."""
    return 0


def ddl_built() -> bool:
    """False."""
    return False


def sycl_built() -> bool:
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
