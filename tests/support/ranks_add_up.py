"""A rank that says who it is and adds its number to the others', through gyre.torch; started by any launcher."""

import gyre.torch as hvd
import torch

hvd.init()
total = hvd.allreduce(torch.tensor([hvd.rank()]), op=hvd.Sum, name="ranks")
print(f"rank {hvd.rank()} of {hvd.size()}, local {hvd.local_rank()} of {hvd.local_size()}: {int(total)}", flush=True)
hvd.shutdown()
