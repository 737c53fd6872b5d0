"""Open MPI through mpi4py: one rank of the benchmark of messages."""

from gyre.bench.ranks.groups import openmpi_ranks
from gyre.bench.ranks.messages import Messages, main


def openmpi_messages() -> Messages:
    from mpi4py import MPI  # noqa: PLC0415 - only here where it is needed

    world = MPI.COMM_WORLD
    return Messages(world.Send, world.Recv)


if __name__ == "__main__":
    main(lambda _: openmpi_ranks(), openmpi_messages)
