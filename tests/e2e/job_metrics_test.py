"""The metrics of a job of the job server, as its user gets them: `gyre job top`, `report`, `tensorboard`, and what
Prometheus reads."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import sys
import time
from pathlib import Path

import pytest
from job_server import JobServer
from other_user import PYTHON as OTHER_USERS_PYTHON

ROOT = Path(__file__).resolve().parent.parent.parent
TRAINING = "import gyre\nfor step in range(1, 4): gyre.log({'loss': 1 / step}, step=step, every_rank=True)\n"

# Rank 1 is killed once both have logged.
END = """
import os, pathlib, time
logged = pathlib.Path("logged")
if os.environ["GYRE_RANK"] == "0": logged.touch()
else:
    while not logged.exists(): time.sleep(0.01)
    os.kill(os.getpid(), 9)
"""


def get(server: JobServer, path: str) -> str:
    """The body of an answer of the server to this process's account."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(f"{server.folder.parent}/gyre.sock")
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert " 200 " in head.splitlines()[0], answer
    return body


@pytest.fixture
def trained(server: JobServer) -> JobServer:
    """A job `train` of two ranks, of which rank 1 has failed, and a cluster of one node."""
    server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
    python = OTHER_USERS_PYTHON if os.geteuid() == 0 else sys.executable
    program = TRAINING + END
    properties = {
        **server.custom(f'"$GYRE_PROGRAM" run -n 2 -- {python} -c {shlex.quote(program)}'),
        "environmentVariables": [{"name": "PYTHONPATH", "value": str(ROOT / "python")}],
    }
    done = server.verb("job", "submit", "-f", "-n", "train", str(server.job_file(properties)))
    assert done.returncode == 137, done.stderr
    return server


def test_the_ranks_and_curves_of_a_job_are_a_commands_away(trained: JobServer, tmp_path: Path) -> None:
    lines = trained.ok("job", "top", "train").splitlines()
    assert lines[0] == "train: 2 ranks, failed with exit code 137"
    assert lines[1] == "loss 0.333333 at step 3"
    assert lines[3].split()[:3] == ["1", "failed", "3"], "the rank that failed comes first"
    assert "was killed by SIGKILL; it failed first" in lines[3]
    assert trained.ok("top", "train").splitlines() == lines
    trained.ok("job", "report", "train", "--to", str(tmp_path / "job.html"))
    data = re.search(r'id="data"[^>]*>(.*?)</script>', (tmp_path / "job.html").read_text(), re.DOTALL)
    assert data is not None
    (run,) = json.loads(data[1])["runs"]
    assert run["name"] == "train"
    assert {(one["rank"], len(one["points"])) for one in run["series"] if one["name"] == "loss"} == {(0, 3), (1, 3)}
    trained.ok("job", "tensorboard", "train", "--to", str(tmp_path / "curves"))
    assert {path.name for path in (tmp_path / "curves").iterdir() if path.is_dir()} >= {"rank-0", "rank-1"}
    trained.ok("job", "download", "train", "--to", str(tmp_path / "files"))
    assert [file for file in (tmp_path / "files").rglob("*.metrics") if file.stat().st_size > 0]
    logs = trained.ok("job", "logs", "train", "--file", "stdout.txt")
    assert "gyremet1" not in logs
    trained.ok("job", "submit", "-f", "-n", "plain", str(trained.job_file(trained.custom("true"))))
    refused = trained.verb("job", "report", "plain")
    assert refused.returncode != 0
    assert "has no metrics" in refused.stderr

    values = get(trained, "/workspaces/default/experiments/default/jobs/train/run/metrics")
    assert 'gyre_logged_step{name="loss",rank="1"} 3\n' in values
    deadline = time.monotonic() + 30
    idle = 'gyre_server_nodes{workspace="default",cluster="pool",state="idle"} 1\n'
    while idle not in (counts := get(trained, "/metrics")):
        assert time.monotonic() < deadline, counts  # The last job's node is made ready first.
        time.sleep(0.05)
    assert 'gyre_server_jobs{workspace="default",state="running"} 0\n' in counts


def test_the_ranks_of_a_job_write_timelines_where_it_asks_for_them(server: JobServer, tmp_path: Path) -> None:
    """Also on nodes of which `gyre run` starts the ranks from another, and where logs travel to the server."""
    server.ok("cluster", "create", "pool", "-t", "2")
    program = [
        str(server.gyre.parent / "gyre-bench-rank"),
        "allreduce",
        "--sizes",
        "1000000",
        "--seconds",
        "0.5",
        "--result",
        "figures",
    ]
    for name, wishes in (("traced", ["--timeline"]), ("plain", [])):
        words = ["-n", name, "--nodes", "2", "--processes", "2", *wishes]
        server.ok("job", "submit", "-f", *words, "--", *program)
        server.ok("job", "download", name, "--to", str(tmp_path / name))
    names = {path.name for path in tmp_path.rglob("gyre-*.json")}
    assert names == {f"gyre-1-timeline-{rank}.json" for rank in range(4)}, "of one job alone"
    for path in (tmp_path / "traced").rglob("gyre-1-timeline-*.json"):
        collectives = [event for event in json.loads(path.read_text()) if event.get("name") == "COLLECTIVE"]
        assert len(collectives) > 10, path
    server.ok("job", "report", "traced", "--to", str(tmp_path / "job.html"))
    data = re.search(r'id="data"[^>]*>(.*?)</script>', (tmp_path / "job.html").read_text(), re.DOTALL)
    assert data is not None
    timeline = json.loads(data[1])["timeline"]
    assert [rank["rank"] for rank in timeline["ranks"]] == [0, 1, 2, 3]
    assert all(rank["spans"]["exchange"] for rank in timeline["ranks"])
    now = json.loads(get(server, "/workspaces/default/experiments/default/jobs/traced/run/now"))
    assert now["timeline"] > 0
