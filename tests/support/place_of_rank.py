"""A script for torchrun: says its place, adds up over the backend that it is told, and ends as it is told."""

import os
import sys

import torch
import torch.distributed as dist

if sys.argv[1] == "gyre":
    import gyre.distributed  # noqa: F401  Makes the backend known where gyre is no installed package.

dist.init_process_group(sys.argv[1])
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT")
print(" ".join(os.environ[name] for name in names), f"sum {total.item():g}", *sys.argv[2:])
if "--fail-once" in sys.argv and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    # At once: a process that tidies up first has told the others that it leaves, and they may be quicker to fail.
    sys.stdout.flush()
    os._exit(3)
dist.barrier()
dist.destroy_process_group()
