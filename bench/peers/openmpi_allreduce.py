"""Open MPI through mpi4py: one rank of the allreduce benchmark, started by mpirun."""

import json
import sys

import numpy as np
from mpi4py import MPI
from timing import measure


def main() -> None:
    world = MPI.COMM_WORLD

    def allreduce(values: np.ndarray) -> None:
        world.Allreduce(MPI.IN_PLACE, values)

    def from_rank_0(value: int) -> int:
        return world.bcast(value, root=0)

    sizes = [int(size) for size in sys.argv[1].split(",")]
    times = {str(size): measure(size, world.rank, world.size, allreduce, from_rank_0) for size in sizes}
    if world.rank == 0:
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
