"""gyre.torch.allreduce_, synchronous: one rank of the allreduce benchmark."""

from gyre.bench.ranks.allreduce import main
from gyre.bench.ranks.groups import gyre_ranks

if __name__ == "__main__":
    main(lambda _: gyre_ranks())
