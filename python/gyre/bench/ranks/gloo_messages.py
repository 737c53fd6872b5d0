"""torch.distributed over gloo: one rank of the benchmark of messages."""

import torch.distributed as dist

from gyre.bench.ranks.groups import gloo_ranks, leave
from gyre.bench.ranks.messages import Messages, main

if __name__ == "__main__":
    main(gloo_ranks, lambda: Messages(dist.send, dist.recv))
    leave()
