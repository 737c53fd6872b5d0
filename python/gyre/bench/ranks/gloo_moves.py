"""torch.distributed over gloo: one rank of the benchmark of moving collectives."""

from gyre.bench.ranks.groups import gloo_ranks, leave
from gyre.bench.ranks.moves import main, torch_moves

if __name__ == "__main__":
    main(gloo_ranks, torch_moves)
    leave()
