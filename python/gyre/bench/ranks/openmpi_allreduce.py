"""Open MPI through mpi4py: one rank of the allreduce benchmark."""

from gyre.bench.ranks.allreduce import main
from gyre.bench.ranks.groups import openmpi_ranks

if __name__ == "__main__":
    main(lambda _: openmpi_ranks())
