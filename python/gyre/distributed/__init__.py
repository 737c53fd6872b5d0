"""torch.distributed over Gyre: `init_process_group("gyre")`, for DDP, FSDP2 and everything that uses process groups.

Importing this module registers the backend; if the wheel is installed, `import torch` does so by itself. Ranks, sizes
and the store come from torch, so it works under `gyre run`, torchrun and any init method. See docs/guide/from_ddp.md.
"""

import torch  # noqa: F401 - it makes the backend known by itself where Gyre is installed, which has to be over first

from gyre._registration import register
from gyre.distributed.process_group import ProcessGroup, create

register(create)

__all__ = ["ProcessGroup"]
