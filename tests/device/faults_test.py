"""What happens to a job whose tensors a device's own library exchanges, when a rank dies or Ctrl-C is pressed while all
wait for the device: it ends at once, and says why. On the simulated device, under `gyre run`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sim_device

SUPPORT = Path(__file__).resolve().parents[1] / "support"
PATIENCE_S = 120
PROMISED_S = 10  # Of a busy machine; most of it is the end of two Pythons.

DISTRIBUTED = """
import os, pathlib, sys
sys.path.insert(0, os.environ["SUPPORT"])
import sim_device, torch, torch.distributed as dist
sim_device.join_group(3)
rank = dist.get_rank()
tensor = torch.ones(4, device=sim_device.own_device())
dist.all_reduce(tensor)
tensor.cpu()
pathlib.Path(f"ready.{rank}").write_text(str(os.getpid()))
if rank == 1:
    import time
    time.sleep(600)
dist.all_reduce(tensor)
tensor.cpu()  # The device waits for rank 1.
"""

HOROVOD = """
import os, pathlib, sys
sys.path.insert(0, os.environ["SUPPORT"])
import sim_device, torch
import gyre.torch as hvd
sim_device.begin()
hvd.init()
tensor = torch.ones(4, device=sim_device.device(hvd.rank()))
hvd.allreduce(tensor).cpu()
pathlib.Path(f"ready.{hvd.rank()}").write_text(str(os.getpid()))
if hvd.rank() == 1:
    import time
    time.sleep(600)
hvd.allreduce(tensor).cpu()
"""
PROGRAMS = {"torch.distributed": DISTRIBUTED, "gyre.torch": HOROVOD}


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """Of three ranks, two of which wait for the device, and that for rank 1."""
    environment = os.environ | {
        "SUPPORT": str(SUPPORT),
        "PYTHONPATH": str(SUPPORT.parents[1] / "python"),
        "SCHEDULE": next(iter(sim_device.SCHEDULES)),
        "BACKEND": "gyre",
        "CARRIER": "delegated",
        "OMP_NUM_THREADS": "1",
    }
    command = ["gyre", "run", "-n", "3", "--", sys.executable, "-c", PROGRAMS[request.param]]
    with (
        (tmp_path / "output").open("w") as output,
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output, text=True) as started,
    ):
        until = time.monotonic() + PATIENCE_S
        while not all((tmp_path / f"ready.{rank}").exists() for rank in range(3)):
            assert started.poll() is None, (tmp_path / "output").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        yield started
        if started.poll() is None:
            started.terminate()


def outcome_of(job: subprocess.Popen[str], folder: Path) -> tuple[int, str]:
    code = job.wait(PROMISED_S)
    return code, (folder / "output").read_text()


@pytest.mark.parametrize("job", list(PROGRAMS), indirect=True)
def test_a_rank_that_is_killed_in_a_collective_is_named(job: subprocess.Popen[str], tmp_path: Path) -> None:
    os.kill(int((tmp_path / "ready.1").read_text()), signal.SIGKILL)
    code, output = outcome_of(job, tmp_path)
    assert code == 128 + signal.SIGKILL, output
    [verdict] = [line for line in output.splitlines() if "SIGKILL" in line]
    assert "rank 1" in verdict, output


@pytest.mark.parametrize("job", list(PROGRAMS), indirect=True)
def test_control_c_ends_ranks_that_wait_for_the_device(job: subprocess.Popen[str], tmp_path: Path) -> None:
    job.send_signal(signal.SIGINT)
    code, output = outcome_of(job, tmp_path)
    assert code == 128 + signal.SIGINT, output
