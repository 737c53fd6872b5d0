"""A timeline is for people: a training with torch.distributed has a row for each process group, not for each call, and
the waits of its loader stand there too, by stage."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from running_job import StartJob

from gyre.data import write_tfrecords

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
    waits = {event["args"]["detail"] for event in events if event.get("name") == "WAIT_FOR_EXCHANGE"}
    assert any("all_reduce" in wait or "allreduce" in wait for wait in waits), waits
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


LOAD = """
import sys, torch
from gyre.data import Loader, floats, write_tfrecords
{start}
path = sys.argv[1] + f"/rank-{{rank}}.tfrecord.gz"
write_tfrecords(path, [{{"x": [float(i)] * 4096}} for i in range(24)], compression="gzip")
Loader([path], {{"x": floats(4096)}}, batch_size=2)  # Nobody asks it for a batch.
for batch in Loader([path], {{"x": floats(4096)}}, batch_size=4, rank=0, world_size=1):
    batch["x"].sum()
{stop}
"""
FACES = {
    "gyre.torch": ("import gyre.torch as face; face.init(); rank = face.rank()", "face.shutdown()"),
    "torch.distributed": (
        "import torch.distributed as dist, gyre.distributed; dist.init_process_group('gyre'); rank = dist.get_rank()",
        "dist.destroy_process_group()",
    ),
}


def waits(trace: Path) -> dict[str, list[dict[str, Any]]]:
    """The phases of the rows of data, by row."""
    events = json.loads(trace.read_text())
    rows = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    found: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] == "X":
            found.setdefault(rows[event["pid"]], []).append(event)
    return found


@pytest.mark.parametrize("face", FACES)
def test_the_loaders_waits_have_a_row_by_stage(start_job: StartJob, tmp_path: Path, face: str) -> None:
    variables = {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    start, stop = FACES[face]
    program = [sys.executable, "-c", LOAD.format(start=start, stop=stop), str(tmp_path)]
    job = start_job("-n", "2", "--timeline", "trace.json", "--", *program, env=variables, timeout=120)
    assert job.wait() == 0, job.stderr
    (row, phases), *others = waits(tmp_path / "trace.json").items()
    assert not others
    assert row == f"data: {tmp_path}/rank-0.tfrecord.gz"
    whole = [phase for phase in phases if phase["name"] == "WAIT_FOR_DATA"]
    assert [phase["args"]["detail"].split(";")[0] for phase in whole] == [f"epoch 0, step {i}" for i in range(6)]
    assert {"INFLATE", "DECODE"} < {phase["name"] for phase in phases}
    for first, then in itertools.pairwise(whole):
        assert first["ts"] + first["dur"] <= then["ts"]
        parts = [p for p in phases if p is not first and first["ts"] <= p["ts"] and p["ts"] < then["ts"]]
        assert sum(part["dur"] for part in parts if part["name"] != "WAIT_FOR_DATA") <= first["dur"]


def check_exchanges(found: dict[str, list[dict[str, Any]]], steps: int) -> None:
    """A row for the calls, and one for each block, in which PUSH and PULL make up PUSH_PULL."""
    calls = [phase for phase in found.pop("parameter servers") if phase["name"] == "STEP"]
    assert len(calls) == steps
    assert {row.partition(":")[0] for row in found} == {"server 0", "server 1"}
    for phases in found.values():
        assert [phase["name"] for phase in phases] == ["PUSH_PULL", "PUSH", "PULL"] * steps
        for call, (whole, push, pull) in zip(calls, zip(*[iter(phases)] * 3, strict=True), strict=True):
            assert call["ts"] <= whole["ts"] == push["ts"]
            assert push["ts"] + push["dur"] == pull["ts"]
            assert pull["ts"] + pull["dur"] == whole["ts"] + whole["dur"] <= call["ts"] + call["dur"]


@pytest.mark.parametrize(("ranks", "servers"), [(1, 0), (2, 0), (2, 2)])
def test_the_programs_show_what_they_wait_for(start_job: StartJob, tmp_path: Path, ranks: int, servers: int) -> None:
    folder = tmp_path / "cosmo"
    for name, volumes in (("train", 4), ("validation", 2)):
        (folder / name).mkdir(parents=True)
        for i in range(volumes):
            volume = {"x": bytes(32**3 * 4 * 2), "y": [0.0] * 4}
            write_tfrecords(folder / name / f"{i}.tfrecord.gz", [volume], compression="gzip")
    network = ("--conv-size", "2", "--fc1-size", "16", "--fc2-size", "8", "--batch-size", "1", "--epochs", "1")
    program = ["gyre-cosmoflow", "--data-dir", str(folder), "--output-dir", str(tmp_path / "out"), *network]
    environment = {"OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    options = ("-n", str(ranks), "--servers", str(servers), "--timeline", "trace.json")
    job = start_job(*options, "--", *program, env=environment, timeout=120)
    assert job.wait() == 0, job.stderr
    found = waits(tmp_path / "trace.json")
    exchanges = {row: found.pop(row) for row in list(found) if "server" in row}
    assert bool(exchanges) == (servers > 0)
    if servers:
        check_exchanges(exchanges, steps=4 // ranks)
    found = {row: phases for row, phases in found.items() if not row.startswith("gyre: ")}  # The engine's.
    steps = {row: sum(phase["name"] == "WAIT_FOR_DATA" for phase in phases) for row, phases in found.items()}
    assert steps == {"data: train": 4 // ranks, "data: test": 2 // ranks}
    assert all("INFLATE" in {phase["name"] for phase in phases} for phases in found.values())


EXCHANGE = """
import torch, gyre.data, gyre.params as ps
ps.init()
loader = gyre.data.Loader("x.tfrecord", {"x": gyre.data.floats(8)}, batch_size=1)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
optimizer = ps.ParameterServerOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), consistency="async"
)
for batch in loader:
    optimizer.zero_grad()
    model(batch["x"]).sum().backward()
    optimizer.step()
optimizer.settle()
"""


def test_a_script_shows_its_exchanges_with_parameter_servers_and_its_loader(
    start_job: StartJob, tmp_path: Path
) -> None:
    write_tfrecords(tmp_path / "x.tfrecord", [{"x": [0.0] * 8} for _ in range(6)])
    variables = {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    options = ("-n", "2", "--servers", "1", "--timeline", "trace.json")
    job = start_job(*options, "--", sys.executable, "-c", EXCHANGE, env=variables, timeout=120)
    assert job.wait() == 0, job.stderr
    found = waits(tmp_path / "trace.json")
    calls = [phase["name"] for phase in found.pop("parameter servers")]
    assert calls == ["PULL", "STEP", "STEP", "STEP", "PULL", "SETTLE"]
    assert sum(phase["name"] == "WAIT_FOR_DATA" for phase in found.pop("data: x.tfrecord")) == 3
    ((row, phases),) = found.items()
    assert row == "server 0: 0.weight … 1.bias"
    assert len(phases) == 3 * 3
