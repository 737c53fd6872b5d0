"""torch.distributed over gloo: one rank of the allreduce benchmark."""

from gyre.bench.ranks.allreduce import main
from gyre.bench.ranks.groups import gloo_ranks, leave

if __name__ == "__main__":
    main(gloo_ranks)
    leave()
