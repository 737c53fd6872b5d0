"""GPUs of a job server's machine, which jobs have for themselves. Names in its CUDA_VISIBLE_DEVICES stand for them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_server import JobServer
from running_job import wait_until

# Says what it sees, and runs until it may end.
SEEING = "echo $CUDA_VISIBLE_DEVICES; while [ ! -e $AZ_BATCHAI_MOUNT_ROOT/external/go ]; do sleep 0.02; done"


@pytest.fixture
def server(gyre: Path, tmp_path: Path) -> Iterator[JobServer]:
    started = JobServer(gyre, tmp_path)
    started.environment["CUDA_VISIBLE_DEVICES"] = "GPU-a,GPU-b,GPU-c,GPU-d"
    started.start()
    try:
        started.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={started.share}")
        yield started
    finally:
        started.close()


def submit(server: JobServer, name: str, *options: str) -> None:
    server.ok("job", "submit", "--name", name, *options, "--", "bash", "-c", SEEING)


def seen(server: JobServer, name: str) -> str:
    wait_until(f"{name} says what it sees", lambda: server.verb("job", "logs", name).stdout.endswith("\n"))
    return server.ok("job", "logs", name).strip().removeprefix("[0] ")


def test_jobs_at_once_have_different_gpus_over_a_kill_of_the_server(server: JobServer) -> None:
    submit(server, "one")
    assert seen(server, "one") == "GPU-a,GPU-b"
    server.restart(signal.SIGKILL)
    submit(server, "two", "--gpus-per-node", "1")
    assert seen(server, "two") == "GPU-c"
    nodes = server.ok("cluster", "nodes", "pool").splitlines()
    assert nodes[0].split() == ["NODE", "STATE", "FOR", "ADDRESS", "GPUS", "JOB", "PROBLEM"]
    assert [node.split()[4] for node in nodes[1:]] == ["2", "2"]
    refused = server.verb("job", "submit", "--nodes", "2", "--gpus-per-node", "3", "--", "true")
    assert refused.returncode != 0
    assert "it asks for 3 GPUs on each of 2 nodes (gpusPerNode), and" in refused.stderr
    (server.share / "go").touch()
    for name in ("one", "two"):
        assert server.verb("job", "wait", name).returncode == 0
