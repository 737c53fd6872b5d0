"""`gyre explain` tells users where their step's time goes: what it runs, how it ends it, and what it says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gyre.explain
import pytest
from gyre.explain.report import complete, predicted_us, words
from running_job import Job, wait_until

Explain = Callable[..., "subprocess.CompletedProcess[str]"]
PACKAGE = Path(gyre.explain.__file__).parent.parent.parent
LONGEST_SECONDS = 240

TRAIN = """
import sys, time
import torch
import gyre.torch as hvd

hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(1024, 512)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(4, 1024)).sum().backward()
    optimizer.step()
    print("step", step, flush=True)
    if len(sys.argv) > 2:
        time.sleep(0.05)
"""


def environment(folder: Path) -> dict[str, str]:
    return {"GYRE_PYTHON": sys.executable, "PYTHONPATH": str(PACKAGE), "TMPDIR": str(folder)}


@pytest.fixture
def explain(gyre: Path, tmp_path: Path) -> Explain:
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(gyre), "explain", *arguments]
        variables = {**os.environ, **environment(scratch)}
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
        )
        assert [path for path in scratch.iterdir() if path.name.startswith("gyre-bench")] == []
        return done

    return run


def test_a_program_is_run_and_its_exchange_explained(explain: Explain) -> None:
    done = explain("-n", "2", "-o", "json", "--", sys.executable, "-c", TRAIN, "4")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)  # Whoever pipes it into a program needs it alone.
    said = [line for line in done.stderr.splitlines() if "step" in line]
    assert sorted(said) == sorted(f"[{rank}] step {step}" for rank in range(2) for step in range(4))
    assert (report["ranks"], report["hosts"]) == (2, 1)
    (plan,) = report["plans"]
    assert plan["steps"] == 4
    assert sum(bucket["tensors"] for bucket in plan["buckets"]) == 2
    assert sum(bucket["bytes"] for bucket in plan["buckets"]) == 4 * (1024 * 512 + 512)
    for bucket in plan["buckets"]:
        assert bucket["predicted_us"] > 0
        assert bucket["achieved_us"] > 0
        assert bucket["reason"]
    assert 0 <= plan["mean"]["hidden_share"] <= 1
    assert words(report).splitlines()[0].startswith("2 ranks on 1 host; measured in ")


DDP_TRAIN = """
import time
import torch, torch.distributed as dist
import gyre.distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.ones(512)

dist.init_process_group("gyre")
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]), bucket_cap_mb=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for batch in DataLoader(Slow(), batch_size=2):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    time.sleep(0.02)
with torch.no_grad():
    model(batch)
dist.destroy_process_group()
"""


def test_ddps_buckets_and_the_rest_of_the_step_are_accounted_for(explain: Explain) -> None:
    done = explain("-n", "2", "-o", "json", "--", sys.executable, "-c", DDP_TRAIN)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    (group,) = report["ddp"]
    buckets = group["buckets"]
    assert len(buckets) > 1
    assert sum(bucket["bytes"] for bucket in buckets) == 4 * 4 * (512 * 512 + 512)
    assert all(bucket["exchange_us"] > 0 and bucket["predicted_us"] > 0 for bucket in buckets)
    issued = [bucket["issued_us"] for bucket in buckets]
    assert issued == sorted(issued)
    step = report["step"]
    assert step["steps"] == 5
    assert step["data_us"] >= 2 * 5000, "each batch sleeps twice"
    assert step["rest_us"] >= 15_000, "so does the loop itself, for 20 ms"
    assert min(step[f"{part}_us"] for part in ("forward", "backward", "optimizer")) > 0
    parts = sum(step[f"{part}_us"] for part in ("data", "forward", "backward", "optimizer", "evaluation", "rest"))
    assert parts == pytest.approx(step["wall_us"], rel=0.01)
    text = words(report)
    assert "DistributedDataParallel in process group '" in text
    assert "A whole step took " in text
    assert "No optimizer exchanged gradients" not in text


def test_a_model_needs_no_program(explain: Explain) -> None:
    done = explain("-n", "2", "--model", "cifar10", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert "optimizer.1: 2 steps, 4.8 MB of gradients" in done.stdout
    assert "shared arena: reduced in place, in memory that the ranks of the host share" in done.stdout
    assert "A step, on average: " in done.stdout


SMALL = """
import sys, torch
if sys.argv[1] == "ddp":
    import gyre.distributed, torch.distributed as dist
    dist.init_process_group("gyre")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
else:
    import gyre.torch as hvd
    hvd.init()
    model = torch.nn.Linear(8, 8)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
for step in range(5):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("face", "word"), [("ddp", "copied"), ("horovod", "mailbox")])
def test_what_a_small_models_report_says_is_explained_there_and_in_the_guide(
    explain: Explain, face: str, word: str
) -> None:
    """The first thing that people try is small, and exchanged in ways that no large example shows."""
    done = explain("-n", "2", "--", sys.executable, "-c", SMALL, face)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^{word}: [a-z]", done.stdout, re.MULTILINE), done.stdout
    guide = (PACKAGE.parent / "docs" / "guide" / "explain.md").read_text()
    assert re.search(rf"\*{word}\*|`{word}` \|", guide)


def test_a_command_that_is_not_found_is_said_once(explain: Explain) -> None:
    done = explain("-n", "2", "--", "nosuch")
    assert done.returncode == 127
    assert done.stderr == "gyre run: cannot start 'nosuch': command not found in any folder of PATH\n"


def test_a_job_that_is_interrupted_is_explained_all_the_same(gyre: Path, tmp_path: Path) -> None:
    """An epoch can take hours; nobody should have to wait for its end."""
    command = [str(gyre), "explain", "-n", "2", "--", sys.executable, "-c", TRAIN, "100000", "slowly"]
    job = Job(command, tmp_path, environment(tmp_path), timeout=LONGEST_SECONDS)
    try:
        wait_until("both ranks train", lambda: all(f"[{rank}] step 3" in job.stdout for rank in range(2)), 120)
        job.process.send_signal(signal.SIGINT)
        assert job.wait() == 128 + signal.SIGINT
        assert "optimizer.1: " in job.stdout
        assert "A step, on average: " in job.stdout
        assert "Traceback" not in job.stderr
        wait_until("all processes ended", lambda: job.processes() == [])
    finally:
        job.end()


def test_a_job_ends_after_the_seconds_given(explain: Explain) -> None:
    # Without torch, whose import takes seconds of its own. Still it depends on the machine by when there is a report.
    script = "import time\nfrom gyre._runtime import init\ninit()\ntime.sleep(1000)"
    for seconds in ("3", "10", "60"):
        done = explain("-n", "1", "--seconds", seconds, "--", sys.executable, "-c", script)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    assert "1 rank on 1 host" in done.stdout


def test_a_job_that_fails_keeps_its_exit_code(explain: Explain) -> None:
    done = explain("-n", "2", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert done.returncode == 3
    assert "gyre explain: there is no report" in done.stderr


def test_a_program_with_another_backend_is_told(explain: Explain) -> None:
    script = "import torch.distributed as dist; dist.init_process_group('gloo'); dist.destroy_process_group()"
    done = explain("-n", "2", "--", sys.executable, "-c", script)
    assert done.returncode == 1
    assert "`gyre explain` has nothing to report on: this program's backend is gloo" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either --model or a command is needed"),
        (["--model", "cifar10", "--", "true"], "either --model or a command is needed"),
        (["--model", "alexnet"], "there is no model 'alexnet'; there are: resnet50, "),
        (["--seconds", "0", "--", "true"], "--seconds is 0; more than 0 and at most 86400 are needed"),
        (["-n", "0", "--", "true"], "-n is '0'; a whole number from 1 to 4096 is needed"),
        (["-n", "two", "--", "true"], "-n is 'two'; a whole number from 1 to 4096 is needed"),
        (["--model", "cifar10", "--steps", "0"], "--steps is 0; 1 to 1000 are possible"),
    ],
)
def test_what_cannot_be_is_told_at_once(explain: Explain, arguments: list[str], message: str) -> None:
    done = explain(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"gyre explain: {message}")


@pytest.mark.parametrize(
    ("ranks", "hosts", "algorithm", "expected_us"),
    [
        (1, 1, "alone", 0),
        (4, 1, "mailbox", 10 + 3.5 * 400),
        (4, 1, "shared arena", 10 + 400),
        (4, 1, "shared pipeline", 10 + 2.625 * 400),
        (2, 1, "shared pipeline", 10 + 2.5 * 200),
        (2, 2, "ring", 10 + 10_000),
        (4, 4, "recursive doubling", 10 + 2 * 10_000),
        (4, 2, "rings of hosts", 10 + 200 + 10_000),
        (4, 4, "halving and doubling", 10 + 1.5 * 10_000),
        (6, 3, "halving and doubling of hosts", 10 + 200 + 3 * 10_000),
        (4, 1, "something new", None),
    ],
)
def test_predictions_follow_from_the_bytes_moved(
    ranks: int, hosts: int, algorithm: str, expected_us: float | None
) -> None:
    """1 MB at 10 GB/s of memory is 100 us per rank of a host; at 100 MB/s of link it is 10 ms."""
    rates = {"latency_us": 10.0, "memory_bytes_per_second": 1e10, "link_bytes_per_second": 1e8 if hosts > 1 else 0.0}
    report = {"ranks": ranks, "hosts": hosts, "rates": rates}
    predicted = predicted_us({"bytes": 10**6, "algorithm": algorithm}, report)
    assert predicted == (None if expected_us is None else pytest.approx(expected_us))


def test_the_words_name_what_was_hidden_and_what_came_out_of_order() -> None:
    bucket = {
        "tensors": 3, "bytes": 1 << 20, "type": "float32", "algorithm": "shared arena", "reason": "because",
        "piece_bytes": 1 << 19, "ready_us": 5.0, "start_us": 6.0, "end_us": 106.0,
    }  # fmt: skip
    total = {"backward_us": 2000.0, "exchange_us": 200.0, "hidden_us": 150.0, "exposed_us": 60.0}
    counted = {"overtaken_buckets": 2, "missing_tensors": 1}
    plan = {"name": "p", "steps": 2, "arena_bytes": 1 << 20, "buckets": [bucket], "total": {**total, **counted}}
    rates = {"latency_us": 1.0, "memory_bytes_per_second": 2e10, "link_bytes_per_second": 0.0, "took_us": 9e4}
    # A job without torch writes no record of its steps.
    report = complete({"ranks": 2, "hosts": 1, "rates": rates, "plans": [plan], "lanes": []})
    text = words(report)
    assert "1.0 ms of backward" in text
    assert "100.0 us of exchange, of which backward hid 75.0 us (75%); the training waited 30.0 us" in text
    assert "2 buckets were complete before one that is sent earlier" in text
    assert "tensors had no gradient" in text
    assert "shared arena: reduced in place" in text
    assert "(because)" in text


def test_workers_are_compared_without_running_anything(explain: Explain) -> None:
    """The figures of the table of traffic: 4 MB at 100 Mbit/s among eight workers."""
    done = explain("--workers", "8", "--bytes", "4000000", "--rate", "100mbit", "--spare-hosts", "8", "-o", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    step_us = {(row["architecture"], row["servers"]): row["step_us"] for row in report["architectures"]}
    assert step_us["allreduce", 0] == pytest.approx(560_000, rel=0.01)
    assert step_us["colocated", 8] == pytest.approx(560_000, rel=0.01)
    # A sixteenth, or a seventh, of the time for the last block's answers.
    assert step_us["dedicated", 1] == pytest.approx(2_560_000 * 17 / 16, rel=0.01)
    assert step_us["dedicated", 8] == pytest.approx(320_000 * 8 / 7, rel=0.01)
    assert (report["choice"]["architecture"], report["choice"]["servers"]) == ("dedicated", 8)
    assert report["servers_that_beat_allreduce"] == 5
    assert report["one_more_host"]["as_server"]["step_us"] == report["choice"]["step_us"]
    assert report["one_more_host"]["as_worker"]["workers"] == 9
    assert 50_000 < report["thresholds"]["doubling_bytes"] < report["thresholds"]["halving_bytes"] < 1_000_000


def test_what_one_more_host_would_bring_is_said_in_words(explain: Explain) -> None:
    few = explain("--workers", "8", "--bytes", "4000000", "--rate", "100mbit").stdout
    assert "An allreduce between 8 hosts goes by recursive doubling up to 94.2 KB, by halving and doubling up to" in few
    assert "With no spare host: allreduce, 560.7 ms per step.\nOne more host as a server: no gain.\n" in few
    some = explain("--workers", "8", "--bytes", "4000000", "--rate", "100mbit", "--spare-hosts", "6").stdout
    assert "With 6 spare hosts: 6 dedicated servers," in some
    assert "One more host as a server: 7 dedicated servers," in some
    assert "Dedicated servers are faster than allreduce from 5 servers on; more than 8 bring nothing." in some


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "1", "--bytes", "4MB"], "--workers is 1; 2 to 10000 are possible"),
        (["--workers", "2"], "--workers needs --bytes, the gradients of a worker, such as --bytes 100MB"),
        (["--workers", "2", "--bytes", "0"], "--bytes is '0'; 1 byte to 16 TB are possible"),
        (["--workers", "2", "--bytes", "x"], "--bytes has 'x'; sizes such as 4, 64KB or 16MB are needed"),
        (
            ["--workers", "2", "--bytes", "4", "--rate", "fast"],
            "--rate is 'fast'; a rate such as 100mbit or 10gbit is needed",
        ),
        (["--workers", "2", "--bytes", "4", "--latency-us", "-1"], "--latency-us is -1; 0 to 10000000 are possible"),
        (["--workers", "2", "--bytes", "4", "--latency-us", "nan"], "--latency-us is nan; 0 to 10000000 are possible"),
        (["--workers", "2", "--bytes", "4", "--spare-hosts", "-1"], "--spare-hosts is -1; 0 to 10000 are possible"),
        (
            ["--workers", "2", "--bytes", "4", "--", "true"],
            "--workers predicts, and runs nothing: leave out --model and the command",
        ),
        (["--rate", "1gbit", "--", "true"], "--rate needs --workers, and runs nothing"),
    ],
)
def test_what_cannot_be_compared_is_refused(explain: Explain, arguments: list[str], message: str) -> None:
    done = explain(*arguments)
    assert (done.returncode, done.stderr) == (2, f"gyre explain: {message}\nSee `gyre explain --help`.\n")
    assert done.stdout == ""
