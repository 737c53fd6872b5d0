"""The page of `gyre run -H … --page`, in a browser: one job of four ranks on two hosts, which a server of our own
reaches by ssh. The checks are in tests/browser/hosts_checks.mjs, and each is an item here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_job import Job, wait_until
from ssh_hosts import SshHosts, ssh_hosts

pytestmark = pytest.mark.needs_programs("sshd", "ssh", "ssh-keygen")

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tests" / "browser" / "hosts_checks.mjs"
MODULES = Path(sys.prefix) / "browser" / "node_modules"
CHECKS = re.findall(r"^  async (\w+)\(\)", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
TRAINING = """
import os, sys, time, gyre
rank = int(os.environ["GYRE_RANK"])
print(f"rank {rank} begins: größer, <b>no markup</b>", flush=True)
print(*(f"{done:4}/1000 batches" for done in range(0, 1001, 2)), sep="\\r", flush=True)
print("warns on stderr", file=sys.stderr, flush=True)
for step in range(100_000):
    gyre.log({"train/loss": 1 / (step + 1)}, step=step, every_rank=True)
    if step % 3 == 0:
        print("step", step, flush=True)
    if rank == 3 and os.path.exists("fail"):
        raise RuntimeError("the cause")
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with ssh_hosts(tmp_path_factory.mktemp("ssh"), 2) as running:
        yield running


def start(gyre: Path, folder: Path, hosts: SshHosts, *options: str, program: str = TRAINING) -> Job:
    (folder / "tmp").mkdir(exist_ok=True)
    ssh = ["--ssh", hosts.command, "-p", str(hosts.port), "-i", str(hosts.identity)]
    places = ",".join(f"{name}:2" for name in hosts.names)
    environment = {"PYTHONPATH": str(ROOT / "python"), "TMPDIR": str(folder / "tmp")}
    command = [str(gyre), "run", *ssh, "-H", places, *options, "--", sys.executable, "-c", program]
    return Job(command, folder, environment, timeout=120)


def link_of(job: Job) -> str:
    link = re.compile(r"the page of this job, for one browser: (\S+)")
    wait_until("the link", lambda: link.search(job.stderr) is not None)
    found = link.search(job.stderr)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def problems(gyre: Path, hosts: SshHosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    folder = tmp_path_factory.mktemp("job")
    assert (MODULES / "playwright-core").is_dir(), "./dev setup test installs it"
    job = start(gyre, folder, hosts, "--page", "--report", "report.html", "--log-dir", "logs")
    try:
        words = [SCRIPT, MODULES, link_of(job), *hosts.names, folder / "fail"]
        done = subprocess.run(["node", *words], capture_output=True, text=True, timeout=180, check=False)
        found = {each["check"]: each["problem"] for each in map(json.loads, done.stdout.splitlines())}
        assert found, done.stderr + job.stderr
        if all(problem is None for problem in found.values()):
            assert job.wait() == 1, job.stderr
            assert not list((folder / "tmp").iterdir()), "the page has left its files"
            assert sorted(path.name for path in (folder / "logs").iterdir()) == [f"rank-{i}.log" for i in range(4)]
            check_report(folder / "report.html")
        yield found
    finally:
        job.end()


def check_report(file: Path) -> None:
    data = re.search(r'id="data"[^>]*>(.*?)</script>', file.read_text(), re.DOTALL)
    assert data is not None
    (run,) = json.loads(data[1])["runs"]
    assert {series["rank"] for series in run["series"] if series["name"] == "train/loss"} == {0, 1, 2, 3}


@pytest.mark.parametrize("check", CHECKS)
def test_the_page_of_a_job_on_two_hosts(problems: dict[str, str | None], check: str) -> None:
    assert check in problems, f"was not reached: {[name for name, problem in problems.items() if problem]}"
    assert problems[check] is None, problems[check]


def test_the_page_has_the_logs_of_all_ranks_byte_by_byte(gyre: Path, hosts: SshHosts, tmp_path: Path) -> None:
    """What is not UTF-8, lines without an end, and more than pipes hold: as `--log-dir` has it on each host."""
    program = """
import os, sys, time
out = sys.stdout.buffer
out.write(bytes(range(256)) * 20)
out.write(b"x" * 300_000 + b"\\n")
out.write(b"".join(b"%d\\n" % i for i in range(100_000)))
out.write(b"no end")
out.flush()
os.close(1)
while not os.path.exists("go"):
    time.sleep(0.02)
"""
    job = start(gyre, tmp_path, hosts, "--page", "--log-dir", "logs", program=program)
    try:
        assert link_of(job)
        files = [tmp_path / "logs" / f"rank-{rank}.log" for rank in range(4)]
        wait_until(
            "all is written", lambda: all(file.exists() and file.read_bytes().endswith(b"no end") for file in files)
        )
        kept = Path(next(path for path in (tmp_path / "tmp").iterdir() if path.name.startswith("gyre-page-")))
        copies = [kept / file.name for file in files]
        wait_until(
            "all has come", lambda: [copy.stat().st_size for copy in copies] == [file.stat().st_size for file in files]
        )
        for file, copy in zip(files, copies, strict=True):
            assert copy.read_bytes() == file.read_bytes()
        (tmp_path / "go").touch()
        assert job.wait() == 0, job.stderr
    finally:
        job.end()


def test_a_host_that_cannot_be_reached_leaves_nothing_of_the_page(gyre: Path, hosts: SshHosts, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    ssh = ["--ssh", hosts.command, "-p", str(hosts.port), "-i", str(hosts.identity)]
    places = f"{hosts.names[0]}:1,127.0.0.99:1"
    command = [str(gyre), "run", *ssh, "-H", places, "--page", "--timeline", "trace.json", "--", "true"]
    job = Job(command, tmp_path, {"TMPDIR": str(tmp_path / "tmp")}, timeout=60)
    assert job.wait() == 255
    assert "cannot start a rank on host 127.0.0.99" in job.stderr
    assert "with -H the page has a timeline where --timeline names a file with {rank} in it" in job.stderr
    assert not list((tmp_path / "tmp").iterdir())
