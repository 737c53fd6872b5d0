"""A timeline of a training with torch.distributed is for people: a row for each process group, not for each call."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from running_job import StartJob

PACKAGE = Path(__file__).resolve().parents[2] / "python"

TRAIN = """
import torch, torch.distributed as dist
import gyre.distributed
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gyre")
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]), bucket_cap_mb=1)
for _ in range(20):
    model(torch.ones(2, 512)).sum().backward()
    dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


def test_process_groups_have_a_row_each(start_job: StartJob, tmp_path: Path) -> None:
    variables = {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    job = start_job(
        "-n", "2", "--timeline", "trace.json", "--", sys.executable, "-c", TRAIN, env=variables, timeout=120
    )
    assert job.wait() == 0, job.stderr
    events = json.loads((tmp_path / "trace.json").read_text())
    rows = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    assert sum("process group" in name for name in rows.values()) == 1, rows
    assert not [name for name in rows.values() if name.startswith("collective")], rows
    begun = [event for event in events if event["ph"] == "B" and event.get("name") == "ALLREDUCE"]
    assert len(begun) >= 2 * 20, "a bucket and a call in every step"
    assert len({event["args"]["collective"] for event in begun}) == len(begun)
    # In each line of the row every beginning has its end, and none encloses another collective's.
    open_in: dict[tuple[int, int], list[str]] = {}
    for event in events:
        line = open_in.setdefault((event["pid"], event.get("tid", 0)), [])
        if event["ph"] == "B" and "args" in event:
            assert not line or line[-1] == event["args"]["collective"], event
            line.append(event["args"]["collective"])
        elif event["ph"] == "E":
            assert line, event
            line.pop()
    assert not any(open_in.values())
