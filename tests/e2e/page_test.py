"""The page of `gyre run --page`, in a browser: one job of two ranks, from its start to the death of one of them. The
checks are in tests/browser/page_checks.mjs, and each is an item here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_job import Job, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tests" / "browser" / "page_checks.mjs"
MODULES = Path(sys.prefix) / "browser" / "node_modules"
MARKUP = "<img src=x onerror=document.title=1>"
CHECKS = re.findall(r"^  async (\w+)\(\)", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
LOST = ["a_page_that_is_stopped_says_so_and_goes_on", "a_lost_connection_is_said"]
TIMELINE_SCRIPT = SCRIPT.with_name("timeline_checks.mjs")
TIMELINE_CHECKS = re.findall(r"^  async (\w+)\(\)", TIMELINE_SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)

TRAINING = f"""
import os, time, gyre
print({MARKUP!r}, flush=True)
print("\\u0130\\u0130 \\x1b[31mÜBER\\x1b[0m DER Nadel", flush=True)
print("filler\\n" * 20_000, end="")
print("a needle in the log", "a second needle", "a third needle", sep="\\n", flush=True)
print(*(f"{{done:4}}/1000 batches" for done in range(0, 1001, 2)), sep="\\r", flush=True)
for step in range(100_000):
    gyre.log({{"train/loss": 1 / (step + 1), {MARKUP!r}: step}}, step=step, every_rank=True)
    if step % 3 == 0:
        print("step", step, {MARKUP!r}, flush=True)
    time.sleep(0.02)
"""


def link_of(job: Job) -> str:
    """What the launcher has printed."""
    link = re.compile(r"the page of this job, for one browser: (\S+)")
    wait_until("the link", lambda: link.search(job.stderr) is not None)
    found = link.search(job.stderr)
    assert found is not None
    return found[1]


def started(gyre: Path, folder: Path) -> tuple[Job, str]:
    """A job, and the link to its page."""
    (folder / "tmp").mkdir()
    environment = {"PYTHONPATH": str(ROOT / "python"), "TMPDIR": str(folder / "tmp")}
    command = [str(gyre), "run", "-n", "2", "--page", "--", sys.executable, "-c", TRAINING, MARKUP]
    job = Job(command, folder, environment, timeout=60)
    return job, link_of(job)


def browse(link: str, environment: dict[str, str]) -> dict[str, str | None]:
    """By check: its problem."""
    assert (MODULES / "playwright-core").is_dir(), "./dev setup test installs it"
    done = subprocess.run(
        ["node", SCRIPT, MODULES, link],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found, done.stderr
    return {each["check"]: each["problem"] for each in found}


@pytest.fixture(scope="module")
def problems(gyre: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    folder = tmp_path_factory.mktemp("job")
    job, link = started(gyre, folder)
    try:
        found = browse(link, {})
        if all(problem is None for problem in found.values()):
            assert job.wait() == 137, job.stderr
            assert not list((folder / "tmp").iterdir()), "the page has left its files"
        yield found
    finally:
        job.end()


@pytest.mark.parametrize("check", [check for check in CHECKS if check not in LOST])
def test_the_page_of_a_job(problems: dict[str, str | None], check: str) -> None:
    assert check in problems, f"was not reached: {[name for name, problem in problems.items() if problem]}"
    assert problems[check] is None, problems[check]


def test_a_stopped_page_and_a_lost_connection_are_said(gyre: Path, tmp_path: Path) -> None:
    job, link = started(gyre, tmp_path)
    try:
        assert browse(link, {"LAUNCHER": str(job.process.pid)}) == dict.fromkeys(LOST)
        wait_until("nothing is left of the job", lambda: not job.processes() and not list((tmp_path / "tmp").iterdir()))
    finally:
        job.end()


TRACED = """
import os, time, torch
import gyre.torch as hvd
hvd.init()
model = torch.nn.Linear(256, 256)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
done = torch.zeros(1)
while done.item() == 0:
    if hvd.rank() == 1:
        time.sleep(0.005)
    optimizer.zero_grad()
    model(torch.ones(8, 256)).sum().backward()
    optimizer.step()
    mine = torch.tensor([float(os.path.exists("stop"))])
    done = hvd.synchronize(hvd.allreduce_async(mine, name="done", op=hvd.Sum))
"""


def test_the_timeline_of_all_ranks_is_on_the_page(gyre: Path, tmp_path: Path) -> None:
    """The checks of tests/browser/timeline_checks.mjs, on one training of two ranks."""
    environment = {"PYTHONPATH": str(ROOT / "python")}
    options = ["--page", "--timeline", "trace.json", "--report", "report.html"]
    job = Job([str(gyre), "run", "-n", "2", *options, "--", sys.executable, "-c", TRACED], tmp_path, environment, 60)
    try:
        link = link_of(job)
        words = [TIMELINE_SCRIPT, MODULES, link, tmp_path / "stop", tmp_path / "report.html"]
        done = subprocess.run(["node", *words], capture_output=True, text=True, timeout=120, check=False)
        found = {each["check"]: each["problem"] for each in map(json.loads, done.stdout.splitlines())}
        assert found == dict.fromkeys(TIMELINE_CHECKS), done.stderr
        assert job.wait() == 0, job.stderr
        assert sorted(path.name for path in tmp_path.glob("trace.json*")) == ["trace.json", "trace.json.rank-1"]
        events = json.loads((tmp_path / "trace.json").read_text())
        waits = [event for event in events if event.get("name") == "WAIT_FOR_EXCHANGE"]
        assert {event.get("args", {}).get("detail") for event in waits} >= {None, "optimizer.1"}, waits[:10]
    finally:
        job.end()
