"""torch.distributed over Gyre: one rank of the benchmark of messages."""

import torch.distributed as dist

from gyre.bench.ranks.groups import distributed_ranks
from gyre.bench.ranks.messages import Messages, main

if __name__ == "__main__":
    main(distributed_ranks, lambda: Messages(dist.send, dist.recv))
