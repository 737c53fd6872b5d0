"""A timeline and `gyre explain` are where users look for the time of their steps: what devices' own libraries carry out
must stand there as what Gyre exchanges itself does. On the simulated device, with a stand-in for NCCL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sim_device

SUPPORT = Path(__file__).resolve().parents[1] / "support"
PATIENCE_S = 120
STEPS = 4

DISTRIBUTED = f"""
import os, sys
sys.path.insert(0, os.environ["SUPPORT"])
import sim_device, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
sim_device.join_group(2)
device = sim_device.own_device()
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(64, 8).to(device))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range({STEPS}):
    model(torch.ones(2, 64, device=device)).sum().backward()
    optimizer.step()
    gathered = torch.empty(2, device=device)
    dist.all_gather_into_tensor(gathered, torch.ones(1, device=device))
    gathered.cpu()
dist.destroy_process_group()
"""
HOROVOD = f"""
import os, sys
sys.path.insert(0, os.environ["SUPPORT"])
import sim_device, torch
import gyre.torch as hvd
sim_device.begin()
hvd.init()
device = sim_device.device(hvd.rank())
torch.manual_seed(1)
model = torch.nn.Linear(64, 8).to(device)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
for step in range({STEPS}):
    optimizer.zero_grad()
    model(torch.ones(2, 64, device=device)).sum().backward()
    optimizer.step()
    hvd.allgather(torch.ones(1, device=device), name="share").cpu()
hvd.barrier()
hvd.shutdown()
"""
PROGRAMS = {f"process group '0' on {sim_device.NAME}": DISTRIBUTED, f"gyre.torch on {sim_device.NAME}": HOROVOD}


@pytest.mark.parametrize("row", PROGRAMS)
def test_a_timeline_and_explain_show_what_the_devices_library_does(tmp_path: Path, row: str) -> None:
    environment = os.environ | {
        "SUPPORT": str(SUPPORT),
        "PYTHONPATH": str(SUPPORT.parents[1] / "python"),
        "GYRE_PYTHON": sys.executable,
        "GYRE_TIMELINE": str(tmp_path / "trace.json"),
        "SCHEDULE": list(sim_device.SCHEDULES)[-1],
        "CARRIER": "delegated",
        "BACKEND": "gyre",
        "OMP_NUM_THREADS": "1",
    }
    command = ["gyre", "explain", "-n", "2", "-o", "json", "--", sys.executable, "-c", PROGRAMS[row]]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    check_timeline(json.loads((tmp_path / "trace.json").read_text()), row)
    check_report(json.loads(done.stdout), row)


def check_timeline(events: list[dict[str, Any]], row: str) -> None:
    rows = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    phases = [event for event in events if event["ph"] == "X" and rows[event["pid"]] == row]
    names = [phase["name"] for phase in phases]
    assert sum("ALLREDUCE" in name for name in names) >= STEPS - 1, names
    assert sum("GATHER" in name for name in names) >= STEPS, names
    assert all(phase["args"]["detail"] for phase in phases), phases
    # They follow each other.
    ends = [phase["ts"] + phase["dur"] for phase in phases]
    assert all(phase["ts"] >= end for phase, end in zip(phases[1:], ends, strict=False)), phases


def check_report(report: dict[str, Any], row: str) -> None:
    found = {one["operation"]: one for one in report["delegated"] if one["row"] == row}
    [reduction] = [one for name, one in found.items() if "ALLREDUCE" in name]
    assert STEPS - 1 <= reduction["count"] <= STEPS, found
    assert reduction["bytes"] == reduction["count"] * (64 * 8 + 8) * 4, found
    assert all(one["busy_us"] > 0 for one in found.values()), found
    if row.startswith("process group"):
        [[bucket]] = [group["buckets"] for group in report["ddp"]]
        assert bucket["on_device"], report["ddp"]
        assert bucket["predicted_us"] is None
