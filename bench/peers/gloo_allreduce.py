"""torch.distributed over gloo: one rank of the allreduce benchmark, started by torchrun."""

import json
import sys

import numpy as np
import torch
import torch.distributed as dist
from timing import measure


def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    def allreduce(values: np.ndarray) -> None:
        dist.all_reduce(torch.from_numpy(values))

    def from_rank_0(value: int) -> int:
        box = torch.tensor([value])
        dist.broadcast(box, 0)
        return int(box)

    sizes = [int(size) for size in sys.argv[1].split(",")]
    times = {str(size): measure(size, rank, ranks, allreduce, from_rank_0) for size in sizes}
    if rank == 0:
        print(json.dumps(times), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
