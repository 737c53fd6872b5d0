"""torch.distributed over Gyre: one rank of the benchmark of moving collectives."""

from gyre.bench.ranks.groups import distributed_ranks
from gyre.bench.ranks.moves import main, torch_moves

if __name__ == "__main__":
    main(distributed_ranks, torch_moves)
