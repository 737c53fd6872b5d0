"""A script that ends one rank with a code of its own ends the job with that code, and that rank is named as the first.

The others fail because of it, at about the same time; a launcher that only looked who ended first would often name
them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from running_job import StartJob

PACKAGE = Path(__file__).resolve().parent.parent.parent / "python"
DDP = """
import sys, torch
import gyre.distributed
import torch.distributed as dist
dist.init_process_group("gyre")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
for step in range(10):
    if dist.get_rank() == 2 and step == 5:
        sys.exit(3)
    model(torch.ones(2, 4)).sum().backward()
"""
GROUP_OF_SOME = """
import sys, torch
import gyre.distributed
import torch.distributed as dist
dist.init_process_group("gyre")
group = dist.new_group([0, 2])
for step in range(10):
    if dist.get_rank() == 2 and step == 5:
        sys.exit(3)
    dist.all_reduce(torch.ones(1), group=group) if dist.get_rank() != 1 else None
dist.barrier()
"""
HOROVOD = """
import sys, torch
import gyre.torch as hvd
hvd.init()
for step in range(10):
    if hvd.rank() == 2 and step == 5:
        sys.exit(3)
    hvd.allreduce(torch.ones(3))
"""


@pytest.mark.parametrize("script", [DDP, GROUP_OF_SOME, HOROVOD], ids=["ddp", "group_of_some", "horovod"])
def test_the_rank_that_ends_itself_is_named_and_its_code_is_the_jobs(start_job: StartJob, script: str) -> None:
    environment = {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"}
    job = start_job("-n", "3", "--", sys.executable, "-c", script, env={**os.environ, **environment}, timeout=240)
    assert job.wait() == 3, job.stderr
    assert "rank 2 of 3 failed first" in job.stderr
    if script == GROUP_OF_SOME:  # Where rank 2 is the second of two; people know it as rank 2.
        assert "process group '1' (allreduce) can never complete: rank 2 has shut down" in job.stderr
