"""An unchanged DDP script whose loader is made first, before anything knows the rank; the backend is gyre."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gyre.data import Loader, ints

loader = Loader(sys.argv[1], {"index": ints()}, batch_size=2, shuffle=False, threads=1)
place = f"{loader.rank}/{loader.world_size}"
if "--twice" in sys.argv:
    dist.init_process_group("gyre")
    dist.destroy_process_group()
dist.init_process_group("gyre")
model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
seen = torch.zeros(loader.samples, dtype=torch.int64)
for batch in loader:
    model(batch["index"].float().view(-1, 1)).sum().backward()
    seen.index_add_(0, batch["index"][: batch.counted].view(-1), torch.ones(batch.counted, dtype=torch.int64))
dist.all_reduce(seen)
own = f"{dist.get_rank()}/{dist.get_world_size()}"
print(f"loader {place}, group {own}: each sample {seen.unique().tolist()}", flush=True)
dist.destroy_process_group()
