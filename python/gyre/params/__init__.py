"""Training through parameter servers, with the interface of gyre.torch's optimizer.

    import gyre.params as ps

    ps.init()
    optimizer = ps.ParameterServerOptimizer(optimizer, model.named_parameters(), consistency="async")

Start it with `gyre run -n 4 --servers 2 -- python train.py`. Without `--servers` the same script exchanges through
allreduce, for "sync" and "local:K". All failures are gyre.Error. See docs/guide/parameter_servers.md.
"""

from __future__ import annotations

from gyre.params.job import broadcast_parameters, init, is_initialized, rank, servers, shutdown, size, sum_over_workers
from gyre.params.optimizer import ParameterServerOptimizer

__all__ = [
    "ParameterServerOptimizer",
    "broadcast_parameters",
    "init",
    "is_initialized",
    "rank",
    "servers",
    "shutdown",
    "size",
    "sum_over_workers",
]
