"""A program's handlers of signals run on the program's threads, never on ours; and what we start begins with no signal
blocked, whichever thread of ours starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from article_job import ARTICLE, make_share, script
from running_job import StartJob

SHOW = "grep SigBlk /proc/self/status"
NONE_BLOCKED = "SigBlk:\t0000000000000000"

THREADS = """
import os, signal
from pathlib import Path
import torch
import gyre.torch as hvd

def threads():
    return set(os.listdir("/proc/self/task"))

# Its own threads start first.
torch.ones(10_000_000).sum().item()
model = torch.nn.Linear(1000, 1000)
model(torch.ones(10, 1000)).sum().backward()
before = threads()
hvd.init()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(10, 1000)).sum().backward()
    optimizer.step()
hvd.allreduce(torch.ones(10), name="sum")
ours = threads() - before
assert ours
for thread in ours:
    try:
        status = Path(f"/proc/self/task/{thread}/status").read_text()
    except OSError:
        continue  # It has ended: a wait that Ctrl-C could have interrupted, for instance.
    blocked = int(status.split("SigBlk:")[1].split()[0], 16)
    name = status.split()[1]
    for wanted in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGALRM):
        assert blocked >> (wanted - 1) & 1, (name, wanted, hex(blocked))
    for fault in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
        assert not blocked >> (fault - 1) & 1, (name, fault, hex(blocked))
print(len(ours), "threads")
hvd.shutdown()
"""


def test_threads_of_a_rank_that_are_ours_take_no_signals(start_job: StartJob) -> None:
    job = start_job("-n", "2", "--", sys.executable, "-c", THREADS)
    assert job.wait() == 0, job.stderr
    assert len(re.findall(r"\d+ threads", job.stdout)) == 2


def test_ranks_start_with_no_signal_blocked(start_job: StartJob) -> None:
    job = start_job("-n", "2", "--", "bash", "-c", SHOW)
    assert job.wait() == 0
    assert sorted(job.stdout.splitlines()) == [f"[{rank}] {NONE_BLOCKED}" for rank in range(2)]


def test_the_programs_of_a_jobs_nodes_start_with_no_signal_blocked(gyre: Path, tmp_path: Path) -> None:
    with make_share() as share:
        script(share, "job-prep.sh", SHOW)
        # On this node, and through the remote shell on each of them.
        nodes = "$(echo $AZ_BATCH_HOST_LIST | tr , ' ')"
        script(share, "run-cifar10.sh", f'{SHOW}; for node in {nodes}; do ssh "$node" {SHOW}; done')
        done = subprocess.run(
            [str(gyre), "job", "run", str(ARTICLE), "--mount", f"external={share}"],
            capture_output=True,
            text=True,
            timeout=120,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        logs = share.glob("storagedir/*/*/workspaces/*/experiments/*/jobs/job/*/stdouterr/stdout*.txt")
        lines = [line for log in logs for line in log.read_text().splitlines() if "SigBlk" in line]
    assert lines == [NONE_BLOCKED] * 5  # Two preparations, the job, two shells.
