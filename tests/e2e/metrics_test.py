"""What ranks log is in the file of `gyre run --metrics`, whatever ends them; and logging costs next to nothing."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from metrics_file import read_metrics
from running_job import StartJob, wait_until

PACKAGE = {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent / "python")}


def python(script: str) -> tuple[str, ...]:
    return "--", sys.executable, "-c", script


def test_a_rank_that_is_killed_leaves_what_it_has_logged(start_job: StartJob, tmp_path: Path) -> None:
    # Rank 1 logs as its last deed; rank 0 has told it that it has logged everything by then.
    script = """
import math, os, signal, time, gyre
rank = int(os.environ["GYRE_RANK"])
gyre.log({"from rank 0": rank}, step=7)
for step in range(100):
    gyre.log({"loss": 1 / (step + 1), "bad": math.nan, "worse": -math.inf}, step=step, every_rank=True)
gyre.log({"auto": 1})
if rank == 0:
    open("logged", "w").close()
    time.sleep(60)
while not os.path.exists("logged"):
    time.sleep(0.005)
gyre.log({"last": 42}, step=-(2**63), every_rank=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    job = start_job("-n", "2", "--metrics", "job.metrics", *python(script), env=PACKAGE)
    assert job.wait() == 137, job.stderr
    metrics = read_metrics(tmp_path / "job.metrics")
    for rank in (0, 1):
        assert metrics.values("loss", rank) == [(step, 1 / (step + 1)) for step in range(100)]
    assert metrics.values("from rank 0", 0) == [(7, 0)]
    assert metrics.ranks_of("from rank 0") == {0}
    assert metrics.values("auto", 0) == [(100, 1)]
    assert metrics.values("last", 1) == [(-(2**63), 42)]
    assert all(math.isnan(value) for _, value in metrics.values("bad", 1))
    assert metrics.values("worse", 1)[0] == (0, -math.inf)
    assert metrics.notes["ranks"] == "2"
    assert metrics.notes["exit_code"] == "137"
    assert "SIGKILL" in metrics.notes["command"]


def test_what_the_engine_counts_and_the_launcher_sees_is_there_for_each_rank(
    start_job: StartJob, tmp_path: Path
) -> None:
    # The launcher looks at its ranks after a second. Rank 1 logs nothing, and yet its counts are there.
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    (tmp_path / "train.py").write_text("lr = 1\n")
    subprocess.run(["git", "-C", tmp_path, "add", "train.py"], check=True)
    subprocess.run(["git", "-C", tmp_path, *identity, "commit", "-qm", "first"], check=True)
    (tmp_path / "train.py").write_text("lr = 2\n")
    (tmp_path / "model.py").write_text("new\n")
    script = """
import time, gyre
from gyre import _runtime
from gyre._job import arrays
_runtime.init()
arrays.barrier(_runtime.current())
if _runtime.current().rank == 0:
    gyre.log({"loss": 1}, step=5)
deadline = time.monotonic() + 1.3
while time.monotonic() < deadline:
    pass
"""
    job = start_job("-n", "2", "--metrics", "job.metrics", *python(script), env=PACKAGE)
    assert job.wait() == 0, job.stderr
    metrics = read_metrics(tmp_path / "job.metrics")
    for name in ("gyre/sent_bytes", "gyre/waiting_seconds", "gyre/cpu_cores", "gyre/memory_bytes"):
        assert metrics.ranks_of(name) == {0, 1}, name
    step, cores = metrics.values("gyre/cpu_cores", 0)[0]
    assert step in (0, 5), "the latest that was logged before the look, which a slow start is later than"
    assert 0 < cores < 64
    assert metrics.values("gyre/memory_bytes", 1)[0][1] > 10_000_000
    head = subprocess.run(["git", "-C", tmp_path, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert metrics.notes["git_commit"] == head.stdout.strip()
    assert "-lr = 1\n+lr = 2\n" in metrics.notes["git_diff"]
    assert "model.py\n" in metrics.notes["git_untracked"]
    assert metrics.notes["exit_code"] == "0"


def test_a_group_of_torchs_tells_how_long_it_waits_while_it_does(start_job: StartJob, tmp_path: Path) -> None:
    # Nobody calls gyre.log: a rank that waits cannot.
    script = """
import time, torch, torch.distributed as dist
dist.init_process_group("gyre")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
loss = model(torch.ones(3, 4)).sum()
dist.barrier()
if dist.get_rank() == 1:
    time.sleep(1.2)
loss.backward()
dist.destroy_process_group()
"""
    job = start_job("-n", "2", "--metrics", "job.metrics", *python(script), env=PACKAGE)
    assert job.wait() == 0, job.stderr
    metrics = read_metrics(tmp_path / "job.metrics")
    for name in ("gyre/sent_bytes", "gyre/waiting_seconds"):
        assert metrics.ranks_of(name) == {0, 1}, name
    waits = [value for _, value in metrics.values("gyre/waiting_seconds", 0)]
    assert waits == sorted(waits)
    assert waits[0] < waits[-1], "told while it waited, and at its end"
    assert 1.0 < waits[-1] < 60
    assert metrics.values("gyre/waiting_seconds", 1)[-1][1] < waits[-1]


def test_a_job_over_hosts_has_one_file(start_job: StartJob, tmp_path: Path) -> None:
    script = "import gyre, os; gyre.log({'lag': int(os.environ['GYRE_RANK'])}, step=1, every_rank=True)"
    hosts = ["-H", "localhost:1,127.0.0.1:1", "--metrics", "job.metrics"]
    job = start_job(*hosts, *python(script), env=PACKAGE)
    assert job.wait() == 0, job.stderr
    metrics = read_metrics(tmp_path / "job.metrics")
    assert metrics.values("lag", 0) == [(1, 0)]
    assert metrics.values("lag", 1) == [(1, 1)]


def test_restarted_ranks_go_on_in_the_file_and_another_job_has_a_new_one(start_job: StartJob, tmp_path: Path) -> None:
    script = """
import os, gyre
restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
gyre.log({"restart": restart}, step=restart)
raise SystemExit(restart == 0)
"""
    options = ["--nproc-per-node", "1", "--max-restarts", "1", "--metrics", "job.metrics"]
    for _ in range(2):
        job = start_job(*options, "--no-python", *python(script), env=PACKAGE)
        assert job.wait() == 0, job.stderr
    assert "is now" in job.stderr
    for name in ("job.metrics", "job.metrics.1"):
        assert read_metrics(tmp_path / name).values("restart", 0) == [(0, 0), (1, 1)]


def test_exports_are_read_by_those_whom_they_are_for(gyre: Path, start_job: StartJob, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 - slow to import

    script = """
import math, gyre
for step in range(5000):
    gyre.log({'train/loss, "mean"': 1 / (step + 1), "lr": math.nan if step == 3 else 0.5}, step=step)
gyre.log({"lag": 3}, step=1, every_rank=True)
"""
    job = start_job("-n", "2", "--metrics", "job.metrics", *python(script), env=PACKAGE)
    assert job.wait() == 0, job.stderr

    def metrics(*words: str) -> str:
        command = [str(gyre), "metrics", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    rows = list(csv.DictReader(metrics("export", "job.metrics").splitlines()))
    losses = [row for row in rows if row["name"] == 'train/loss, "mean"']
    assert [(row["rank"], int(row["step"]), float(row["value"])) for row in losses] == [
        ("0", step, 1 / (step + 1)) for step in range(5000)
    ]
    assert {row["rank"] for row in rows if row["name"] == "lag"} == {"0", "1"}

    few = json.loads(metrics("export", "job.metrics", "--format", "json", "--points", "100"))
    series = {(each["name"], each["rank"]): each["points"] for each in few["series"]}
    loss = series['train/loss, "mean"', 0]
    assert 50 <= len(loss) <= 100
    assert loss[0][0] == 0
    assert loss[-1][0] == 4999
    whole = json.loads(metrics("export", "job.metrics", "--format", "json"))
    lr = next(each["points"] for each in whole["series"] if each["name"] == "lr")
    assert lr[3][2] == "NaN"

    for _ in range(2):  # A second export takes the place of the first.
        metrics("export", "job.metrics", "--format", "tensorboard", "--to", "curves")
    events = EventAccumulator(str(tmp_path / "curves" / "rank-0"), size_guidance={"scalars": 0})
    events.Reload()
    shown = events.Scalars('train/loss, "mean"')
    assert [(each.step, each.value) for each in shown] == [
        (step, struct.unpack("f", struct.pack("f", 1 / (step + 1)))[0]) for step in range(5000)
    ]
    assert shown[0].wall_time == pytest.approx(float(losses[0]["time"]))
    assert (tmp_path / "curves" / "rank-1").is_dir()
    assert start_job("--metrics", "next.metrics", *python("import gyre\ngyre.log({'lr': 1})"), env=PACKAGE).wait() == 0
    words = [gyre, "metrics", "export", "next.metrics", "--format", "tensorboard", "--to", "curves"]
    mixed = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert mixed.returncode != 0
    assert "curves has the curves of another run" in mixed.stderr

    prometheus = metrics("export", "job.metrics", "--format", "prometheus")
    assert '\ngyre_logged_value{name="train/loss, \\"mean\\"",rank="0"} 0.0002\n' in prometheus
    assert '\ngyre_logged_step{name="lag",rank="1"} 1\n' in prometheus

    assert "python" in metrics("show", "job.metrics")
    (tmp_path / "cut.metrics").write_bytes((tmp_path / "job.metrics").read_bytes()[:20_000])
    show = [gyre, "metrics", "show", "cut.metrics"]
    cut = subprocess.run(show, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "of cut.metrics are cut off or damaged" in cut.stderr
    assert "cut off: `gyre run` was killed" in cut.stdout
    assert "exit_code" in metrics("compare", "job.metrics", "cut.metrics")


def test_a_report_is_one_page_in_which_only_its_own_script_runs(
    gyre: Path, start_job: StartJob, tmp_path: Path
) -> None:
    # A name, a command and a difference in git are the user's: none of them may end the element that holds the data.
    hostile = "</script><script>alert(1)</script><!--"
    script = f"""
import gyre
for step in range(5000):
    gyre.log({{{hostile!r}: step, "loss": float("nan") if step == 9 else 0.5}}, step=step)
"""
    job = start_job("--metrics", "job.metrics", *python(script), env=PACKAGE)
    assert job.wait() == 0, job.stderr
    subprocess.run([gyre, "report", "job.metrics", "--to", "job.html"], cwd=tmp_path, check=True)
    page = (tmp_path / "job.html").read_text()
    scripts = re.findall(r"<script([^>]*)>(.*?)</script", page, re.DOTALL)
    assert [kind for kind, _ in scripts] == [' type="application/json" id="data"', ""]
    digest = base64.b64encode(hashlib.sha256(scripts[1][1].encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'sha256-" in policy
    assert "unsafe" not in policy
    (run,) = json.loads(scripts[0][1])["runs"]
    assert run["name"] == "job.metrics"
    assert hostile in run["notes"]["command"]
    points = {each["name"]: each["points"] for each in run["series"]}
    assert 1000 <= len(points[hostile]) <= 2000
    assert page.count("alert(1)") == 2  # The series, and the command: nothing has unpacked them.
    written = subprocess.run([gyre, "report", "job.metrics"], cwd=tmp_path, check=True, capture_output=True)
    assert written.stdout.decode() == page


def test_gyre_run_writes_the_report_of_a_job_that_failed(start_job: StartJob, tmp_path: Path) -> None:
    # Whose exit code stays, even where no report can be written.
    script = "import gyre; gyre.log({'loss': 1}); raise SystemExit(3)"
    job = start_job("--report", "job.html", *python(script), env=PACKAGE)
    assert job.wait() == 3, job.stderr
    assert '"exit_code":"3"' in (tmp_path / "job.html").read_text()
    assert read_metrics(tmp_path / "job.html.metrics").values("loss", 0) == [(1, 1)]
    job = start_job("--report", "none/job.html", "--metrics", "job.metrics", *python(script), env=PACKAGE)
    assert job.wait() == 3, job.stderr
    assert "gyre run: no report: " in job.stderr


def test_the_page_in_the_program_is_built_from_its_sources() -> None:
    # As web/assemble.mjs computes it; `npm run build` there makes the page anew.
    web = Path(__file__).resolve().parent.parent.parent / "web"
    names = [f"src/{path.name}" for path in (web / "src").iterdir()]
    digest = hashlib.sha256()
    for name in sorted([*names, "assemble.mjs", "package-lock.json", "tsconfig.json", "vite.config.ts"]):
        digest.update(f"{name}\n".encode() + (web / name).read_bytes())
    assert f"<!-- Built from web/ (sources {digest.hexdigest()})" in (web / "built" / "report.html").read_text()


def test_the_pages_lock_file_is_whole_and_names_no_registry() -> None:
    # npm 11 refuses one that lacks a package which others want, also one for another system that is never installed.
    web = Path(__file__).resolve().parent.parent.parent / "web"
    packages = json.loads((web / "package-lock.json").read_text())["packages"]
    assert "://" not in "".join(str(each.get("resolved", "")) for each in packages.values())
    wanted = {
        name
        for each in packages.values()
        for kind in ("dependencies", "devDependencies", "optionalDependencies")
        for name in each.get(kind, {})
    }
    assert {name for name in wanted if f"node_modules/{name}" not in packages} == set()


def test_gyre_log_without_a_launcher_does_nothing(tmp_path: Path) -> None:
    # Also where the variable survives and the pipe does not.
    script = "import gyre; gyre.log({'loss': 1}); gyre.log({'loss': 1}, step=3, every_rank=True)"
    for variables in ({}, {"GYRE_METRICS_FD": "0", "GYRE_RANK": "0", "GYRE_SIZE": "1"}):
        subprocess.run([sys.executable, "-c", script], env={**PACKAGE, **variables}, cwd=tmp_path, check=True)
    assert not list(tmp_path.iterdir())


def test_a_value_that_cannot_be_logged_is_an_error_that_names_it(start_job: StartJob, tmp_path: Path) -> None:
    script = """
import gyre
class Tensor:
    def item(self):
        raise ValueError("2 elements")

for values in (
    {"gyre/x": 1}, {"a\\nb": 1}, {"": 1}, {1: 1}, {"many": Tensor()}, {"loss": "high"}, {"good": 1, "bad": None}
):
    try:
        gyre.log(values)
    except (gyre.Error, TypeError) as error:
        print(type(error).__name__, error)
for step in (1.5, 2**63, -(2**63) - 1, "a"):
    try:
        gyre.log({"a": 1}, step=step)
    except TypeError as error:
        print("step:", error)
"""
    job = start_job("--metrics", "job.metrics", *python(script), env=PACKAGE)
    assert job.wait() == 0, job.stderr
    assert job.stdout.count("step: gyre.log: a step is a whole number of at most 64 bits, not ") == 4
    assert job.stdout.count("InvalidArgumentError") == 3
    assert "'gyre/x'" in job.stdout
    assert job.stdout.count("TypeError") == 4
    assert "'loss' has a value that is not a number" in job.stdout
    assert not read_metrics(tmp_path / "job.metrics").ranks_of("good")


def test_values_that_are_lost_with_the_end_of_a_rank_are_said(start_job: StartJob, tmp_path: Path) -> None:
    """`gyre run` stands still: a slow disk does that."""
    script = """
import os, time, gyre
gyre.log({"loss": 0})
open("ready", "w").close()
while not os.path.exists("stopped"):
    time.sleep(0.01)
for step in range(300_000):
    gyre.log({"loss": step})
"""
    job = start_job("--verbose", "--metrics", "job.metrics", *python(script), env=PACKAGE)
    wait_until("the rank logs", (tmp_path / "ready").exists)
    [rank] = job.rank_pids(1)
    os.kill(job.process.pid, signal.SIGSTOP)
    (tmp_path / "stopped").touch()
    wait_until("the rank has ended", lambda: " Z " in (Path("/proc") / str(rank) / "stat").read_text())
    os.kill(job.process.pid, signal.SIGCONT)
    assert job.wait() == 0, job.stderr
    assert "gyre.log: the last values of rank 0 are lost: `gyre run` has not read for too long" in job.stderr
    assert len(read_metrics(tmp_path / "job.metrics").values("loss", 0)) < 300_000


def test_top_shows_the_ranks_of_a_run_that_is_under_way(start_job: StartJob, tmp_path: Path) -> None:
    script = """
import os, time, gyre
rank = int(os.environ["GYRE_RANK"])
for step in range(3 - rank):  # Rank 1 is behind.
    gyre.log({"loss": 0.5}, step=step, every_rank=True)
open(f"logged.{rank}", "w").close()
while not os.path.exists("seen"):
    time.sleep(0.01)
"""

    def top() -> list[str]:
        shown = subprocess.run(
            ["gyre", "top", "--once", "job.metrics"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return shown.stdout.splitlines()

    job = start_job("-n", "2", "--metrics", "job.metrics", *python(script), env=PACKAGE)
    until = time.monotonic() + 60
    while not ((tmp_path / "logged.0").exists() and (tmp_path / "logged.1").exists()):
        assert time.monotonic() < until, job.stderr
        time.sleep(0.01)
    while len(lines := top()) < 5:  # What is in the pipe arrives in a moment.
        assert time.monotonic() < until, lines
    assert "2 ranks" in lines[0]
    assert lines[0].endswith("under way")
    assert lines[1] == "loss 0.5 at step 2"
    rows = [line.split()[:3] for line in lines[2:]]
    assert rows == [["RANK", "STATE", "STEP"], ["0", "running", "2"], ["1", "running", "1"]]
    (tmp_path / "seen").touch()
    assert job.wait() == 0, job.stderr
    assert top()[0].endswith("ended with exit code 0")


def test_no_output_is_written_over_its_own_input_nor_lost_without_a_word(start_job: StartJob, tmp_path: Path) -> None:
    def gyre(*words: str) -> tuple[int, str]:
        done = subprocess.run(["gyre", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    job = start_job("--metrics", "job.metrics", *python("import gyre; gyre.log({'loss': 1})"), env=PACKAGE)
    assert job.wait() == 0, job.stderr
    (tmp_path / "link").symlink_to("job.metrics")
    before = (tmp_path / "job.metrics").read_bytes()
    for words in (["metrics", "export", "job.metrics", "--to", "link"], ["report", "link", "--to", "job.metrics"]):
        code, message = gyre(*words)
        assert (code, "is what is read; it would be lost" in message) == (2, True), message
    same = gyre("run", "--metrics", "job.metrics", "--report", "./job.metrics", "--", "true")
    assert same == (2, "gyre run: --metrics and --report are the same file\nSee `gyre run --help`.\n")
    assert (tmp_path / "job.metrics").read_bytes() == before
    for words in ("metrics show job.metrics", "metrics compare job.metrics job.metrics", "top --once job.metrics"):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                ["gyre", *words.split()], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, check=False
            )
        assert done.returncode == 1, words
        assert b"No space left on device" in done.stderr
