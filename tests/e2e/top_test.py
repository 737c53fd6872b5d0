"""`gyre top`: the ranks of a run's file or of a job of a job server, on a terminal and without one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job_server import JobServer
from other_user import PYTHON as OTHER_USERS_PYTHON
from terminal import terminal

ROOT = Path(__file__).resolve().parent.parent.parent
TRAINING = """
import os, sys, time, gyre
rank, share = os.environ["GYRE_RANK"], sys.argv[1]
for step in range(1, 4):
    gyre.log({"loss": 1 / step, "lr": 0.1}, step=step, every_rank=True)
print("rank", rank, "waits\\n", flush=True)
print("10 %", end="\\r20 %\\r", file=sys.stdout if rank == "0" else sys.stderr, flush=True)
while not os.path.exists(f"{share}/{rank}"):
    time.sleep(0.02)
sys.exit(int(rank))
"""


def submit_training(server: JobServer, name: str) -> None:
    python = OTHER_USERS_PYTHON if os.geteuid() == 0 else sys.executable
    words = f'"$GYRE_PROGRAM" run -n 2 -- {python} -c {shlex.quote(TRAINING)} {shlex.quote(str(server.share))}'
    properties = {
        **server.custom(words),
        "environmentVariables": [{"name": "PYTHONPATH", "value": str(ROOT / "python")}],
    }
    server.ok("job", "submit", "-n", name, str(server.job_file(properties)))


@pytest.fixture
def pool(server: JobServer) -> JobServer:
    server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
    return server


def has(lines: list[str], *patterns: str) -> bool:
    return all(any(re.search(pattern, line) for line in lines) for pattern in patterns)


def test_a_job_is_followed_across_a_restart_of_its_server_until_it_ends(pool: JobServer) -> None:
    submit_training(pool, "train")
    with terminal([str(pool.gyre), "top", "train"], pool.environment, columns=110) as view:
        rows = (r"^0 +running +3 .*rank 0 waits", r"^1 +running +3 .*rank 1 waits")
        view.wait_for(
            lambda lines: has(lines, "^train: 2 ranks, running", "^loss 0.333333 at step 3", "^lr 0.1", *rows)
        )
        assert not has(view.lines(), r"^RANK.*too narrow")
        pool.end()
        view.wait_for(lambda lines: has(lines, "^gyre top: no job server answers at unix:"))
        pool.start()
        (pool.share / "0").touch()
        view.wait_for(lambda lines: has(lines, r"^0 +ended"))
        # One block, however often it was drawn.
        assert len([line for line in view.lines() if line.startswith("RANK")]) == 1
        (pool.share / "1").touch()
        assert view.wait_for_end() == 0, "as `gyre job logs -f`, however the job ends"
        assert has(
            view.lines(), "^train: 2 ranks, failed with exit code 1", r"^1 +failed.*exit code 1; it failed first"
        )
        assert view.is_restored()
    plain = pool.ok("job", "top", "train")
    assert "\x1b" not in plain
    assert plain == pool.ok("top", "train")
    assert plain.splitlines()[0] == "train: 2 ranks, failed with exit code 1"


def test_a_job_is_seen_over_https(job_server: JobServer) -> None:
    job_server.start("--listen", "127.0.0.1:0")
    job_server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={job_server.share}")
    job_server.ok("user", "create", "ada", "--to", "ada.json")
    job_server.ok("workspace", "add-owner", "default", "ada")
    submit_training(job_server, "train")
    for rank in "01":
        (job_server.share / rank).touch()
    job_server.verb("job", "wait", "train")
    assert "https://" in (job_server.tmp_path / "ada.json").read_text()
    shown = job_server.ok("top", "train", "--server", "ada.json")
    assert shown == job_server.ok("top", "train")
    assert "loss 0.333333 at step 3" in shown


def test_a_job_without_ranks_says_why(pool: JobServer) -> None:
    until = f"while [ ! -e {pool.share}/go ]; do sleep 0.05; done"
    pool.ok("job", "submit", "-n", "plain", str(pool.job_file(pool.custom(until))))
    pool.ok("job", "submit", "-n", "second", str(pool.job_file(pool.custom("true"))))
    deadline = time.monotonic() + 60
    while not (shown := pool.ok("top", "plain")).startswith("plain: running for "):
        assert time.monotonic() < deadline, shown
    assert "no ranks have been heard of yet" in shown
    assert "mpirun and other programs say nothing of theirs" in shown
    assert "`gyre job logs -f plain` shows what they write" in shown
    waiting = pool.ok("top", "second").splitlines()
    assert re.fullmatch(r"second: queued for \d+s", waiting[0])
    assert waiting[1].startswith("waits: ")
    with terminal([str(pool.gyre), "top", "second"], pool.environment) as view:
        view.wait_for(lambda lines: has(lines, "^second: queued for", "^waits: "))
        (pool.share / "go").touch()
        assert view.wait_for_end() == 0
        assert has(view.lines(), "^job 'second' succeeded", "^no ranks were heard of")


def test_a_name_is_a_job_or_a_file_and_an_error_names_both(pool: JobServer) -> None:
    metrics = pool.tmp_path / "train"
    subprocess.run([pool.gyre, "run", "--metrics", metrics, "--", "true"], check=True)
    assert "true: 1 rank," in pool.ok("top", "train"), "there is no such job"
    pool.ok("job", "submit", "-f", "-n", "train", str(pool.job_file(pool.custom("true"))))
    both = pool.verb("top", "train")
    assert both.returncode == 2
    assert "`gyre top ./train` shows the file, `gyre job top train` the job" in both.stderr
    assert "true: 1 rank," in pool.ok("top", "./train")
    for words in (("job", "top", "train"), ("top", "-w", "default", "train"), ("top", "default/train")):
        assert "job 'train' succeeded" in pool.ok(*words)

    (pool.tmp_path / "text").write_text("no metrics")
    for name, sentence in (
        ("other", "there is no job 'other' in workspace 'default'; nor is there a file 'other' here"),
        ("text", "there is no job 'text' in workspace 'default'; and 'text' here is not a metrics file"),
        ("other.metrics", "other.metrics: No such file or directory"),
    ):
        missing = pool.verb("top", name)
        assert missing.returncode == 1, name
        assert sentence in missing.stderr, missing.stderr
        assert len(missing.stderr.splitlines()) == 1
    nowhere = pool.verb("top", "train", env={"GYRE_SERVER": "unix:/nonexistent/sock"})
    assert "true: 1 rank," in nowhere.stdout, "no server, so it is the file"
    nowhere = pool.verb("top", "other", env={"GYRE_SERVER": "unix:/nonexistent/sock"})
    assert nowhere.returncode == 1
    assert "no job server answers" in nowhere.stderr


@pytest.mark.parametrize(("columns", "left_out"), [(44, "LAST VALUE"), (16, "LAST VALUE, CORES, MEMORY")])
def test_a_narrow_terminal_leaves_out_columns_and_says_which(
    gyre: Path, tmp_path: Path, columns: int, left_out: str
) -> None:
    program = "import gyre, time\ngyre.log({'loss': 1}, step=5, every_rank=True)\ntime.sleep(600)"
    run = subprocess.Popen(
        [gyre, "run", "-n", "40", "--metrics", "run.metrics", "--", sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "run.metrics").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with terminal([str(gyre), "top", str(tmp_path / "run.metrics")], columns=columns) as view:
            narrow = f"^too narrow for {left_out}"[: columns - 1]
            view.wait_for(lambda lines: has(lines, "^RANK", r"^0 +", r"^and \d+ more", narrow))
            view.wait_for(lambda lines: any("5" in line.split() and "more" not in line for line in lines))
            assert all(len(line) < columns for line in view.lines())
            # Nothing was drawn a second time below itself.
            assert len([line for line in view.lines() if line.startswith("RANK")]) == 1
    finally:
        run.terminate()
        run.wait()


ROLES = """
import os, time
print("hello from the", os.environ["AZ_BATCHAI_TASK_TYPE"], flush=True)
if os.environ["AZ_BATCHAI_TASK_TYPE"] == "worker":
    raise SystemExit(3)
time.sleep(600)
"""


def test_processes_of_tensorflow_have_their_roles_and_mpirun_shows_none(pool: JobServer) -> None:
    (pool.share / "roles.py").write_text(ROLES)
    (pool.share / "roles.py").chmod(0o644)
    roles = {
        "pythonScriptFilePath": "$AZ_BATCHAI_MOUNT_ROOT/external/roles.py",
        "pythonInterpreterPath": OTHER_USERS_PYTHON,
        "workerCount": 2,
        "parameterServerCount": 1,
    }
    mpi = {"commandLine": "true", "processCount": 2}
    for name, toolkit in (("roles", {"tensorFlowSettings": roles}), ("mpi", {"customMpiSettings": mpi})):
        properties = {"nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external", **toolkit}
        pool.ok("job", "submit", "-n", name, str(pool.job_file(properties)))
        pool.verb("job", "wait", name)
    title, heading, *rows = pool.ok("top", "roles").splitlines()
    assert title == "roles: 3 ranks, failed with exit code 3"
    assert heading.split()[:2] == ["RANK", "STATE"]
    assert re.match(r"worker 1 +failed .*exit code 3; it failed first; hello from the worker$", rows[0])
    assert {row[:8] for row in rows} == {"worker 1", "ps 0    ", "master 0"}
    assert "mpirun and other programs say nothing of theirs" in pool.ok("top", "mpi")
