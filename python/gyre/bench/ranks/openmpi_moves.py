"""Open MPI through mpi4py: one rank of the benchmark of moving collectives."""

from gyre.bench.ranks.groups import openmpi_ranks
from gyre.bench.ranks.moves import Moves, main


def openmpi_moves() -> Moves:
    from mpi4py import MPI  # noqa: PLC0415 - only the programs that need it pay for it

    world = MPI.COMM_WORLD
    return Moves(
        lambda target, source: world.Allgather(source, target),
        lambda target, source: world.Alltoall(source, target),
        world.Bcast,
    )


if __name__ == "__main__":
    main(lambda _: openmpi_ranks(), openmpi_moves)
