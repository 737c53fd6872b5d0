"""A rank that has fewer batches leaves its loop early and ends well, and the others fail for want of it. People see
only those, unless every word about it names the rank that left, what it was missed for, and join()."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from running_job import StartJob

PACKAGE = Path(__file__).resolve().parent.parent.parent / "python"

# Python, torch and the user's own clean-up take longer than the others need to fail: handlers run in reverse order.
START = """
import atexit, time
atexit.register(time.sleep, 1.5)
import torch
"""
OPTIMIZER = """
import gyre.torch as hvd
hvd.init()
model = torch.nn.Linear(4, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
for batch in range(3 if hvd.rank() == 1 else 5):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""
OPERATION = """
import gyre.torch as hvd
hvd.init()
for batch in range(3 if hvd.rank() == 1 else 5):
    hvd.allreduce(torch.ones(3), name="loss")
"""
DDP = """
import gyre.distributed, torch.distributed as dist
dist.init_process_group("gyre")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
for batch in range(3 if dist.get_rank() == 1 else 5):
    model(torch.ones(2, 4)).sum().backward()
"""
MISSED_FOR = {
    OPTIMIZER: r"sum of '(bias|weight)' and 1 more in step 4 of gradient exchange 'optimizer\.1'",
    OPERATION: r"allreduce 'allreduce\.loss'",
    DDP: r"collective \d+ of process group '0' \(allreduce\)",
}


@pytest.mark.parametrize("script", [OPTIMIZER, OPERATION, DDP], ids=["optimizer", "operation", "ddp"])
def test_the_rank_that_left_is_named_with_what_it_was_missed_for_and_the_usual_cause(
    start_job: StartJob, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # As it is for users.
    environment = {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"}
    job = start_job("-n", "3", "--", sys.executable, "-c", START + script, env=environment, timeout=240)
    assert job.wait() == 1, job.stderr
    block = job.stderr.partition("gyre run: rank ")[2]
    expected = (
        "  before it    rank 1 had already ended with exit code 0 (uneven number of batches? see join(); or a "
        "collective on some ranks only, such as evaluation on rank 0)\n"
    )
    assert expected in block, job.stderr
    said = re.search(r"PeerLeftError: (.*)", job.stderr)
    assert said is not None, job.stderr
    assert re.search(MISSED_FOR[script], said[1]), said[1]
    assert re.search(r"rank 1 (\(host .*\) left|has shut down)", said[1]), said[1]
    assert "Probably it had fewer batches than the others" in said[1]
    assert "join()" in said[1]
    assert " of lane " not in job.stderr
