"""What a job may use of its nodes: cores and memory, on the host and in a container."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from gyre.workers import _limits
from job_server import JobServer

MOUNT = "$AZ_BATCHAI_MOUNT_ROOT/external"
needs_cgroups = pytest.mark.skipif(
    os.geteuid() != 0 or bool(_limits.lacking_controllers()), reason="limits of jobs need root, and cgroups"
)


@pytest.fixture
def pool(job_server: JobServer) -> JobServer:
    (job_server.share / "greedy.py").write_text("x = b'x' * (200 << 20)\n")
    job_server.start()
    job_server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={job_server.share}")
    return job_server


def ended(server: JobServer, name: str, properties: dict[str, Any]) -> dict[str, Any]:
    server.ok("job", "submit", str(server.job_file(properties)), "-n", name, "-c", "pool")
    server.verb("job", "wait", name)
    return server.json("job", "show", name)["properties"]  # type: ignore[no-any-return]


def cgroups_of_job(lines: str) -> list[Path]:
    """Those that the job alone is in, of the lines of its /proc/self/cgroup."""
    found = []
    for line in lines.splitlines():
        _, controllers, path = line.split(":", 2)
        if "/gyre-" in path:
            found.append(Path("/sys/fs/cgroup", controllers, path.lstrip("/")))
    return found


@needs_cgroups
def test_a_rank_that_needs_more_than_the_jobs_memory_is_named_with_the_limit(pool: JobServer) -> None:
    """By the kernel, which has killed it: the job's own exit code and last lines say nothing of memory."""
    kept = pool.share / "cgroups"
    line = (
        f'cat /proc/self/cgroup >> {kept}; [ "$GYRE_RANK" = 1 ] || exec sleep 100; exec python3 {pool.share}/greedy.py'
    )
    done = pool.verb(
        *("job", "submit", "-n", "greedy", "-c", "pool", "--processes", "2", "--memory-per-node", "100m"),
        *("--logs", MOUNT, "--follow", "--", "sh", "-c", line),
    )
    assert done.returncode == 137, (done.stdout, done.stderr)
    [error] = pool.json("job", "show", "greedy")["properties"]["executionInfo"]["errors"]
    assert "the kernel killed rank 1 because the job reached its memory limit on node" in error["message"]
    assert "memoryPerNode 100m" in error["message"]
    assert (cgroups := cgroups_of_job(kept.read_text()))
    assert not [each for each in cgroups if each.exists()]


@needs_cgroups
def test_the_launcher_of_a_job_names_the_limit_too(pool: JobServer) -> None:
    """Where the job starts ranks itself, in its own log."""
    line = f"{pool.gyre} run -n 1 -- python3 {pool.share}/greedy.py"
    job = ended(pool, "own", {**pool.custom(line), "memoryPerNode": "100m"})
    assert job["executionState"] == "failed"
    assert "the kernel killed it because the job reached its memory limit" in str(job["executionInfo"]["errors"])
    log = next(pool.share.glob("**/stderr.txt")).read_text()
    assert "because the job reached its memory limit here, 100 MB" in log


@needs_cgroups
def test_a_job_has_no_more_cores_than_it_asks_for(pool: JobServer) -> None:
    """By the kernel's quota, of which a launcher in the job knows."""
    line = f"{pool.gyre} run --nproc-per-node auto --no-python -- echo rank"
    job = ended(pool, "one", {**pool.custom(line), "cpusPerNode": 1})
    assert job["executionState"] == "succeeded"
    assert "is not enforced" not in pool.ok("job", "events", "one")
    assert next(pool.share.glob("**/stdout.txt")).read_text().count("rank") == 1


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"cpusPerNode": 4096}, "it asks for 4096 cores on each node (cpusPerNode), and the server's machine"),
        ({"memoryPerNode": "900000gb"}, "it asks for 900000gb of memory on each node (memoryPerNode)"),
    ],
)
def test_a_job_that_asks_for_more_than_the_machine_has_is_refused(
    pool: JobServer, asked: dict[str, Any], sentence: str
) -> None:
    file = pool.job_file({**pool.custom("true"), **asked})
    refused = pool.verb("job", "submit", str(file), "-c", "pool")
    assert refused.returncode != 0
    assert sentence in refused.stderr


def test_limits_that_cannot_be_enforced_are_said_once(pool: JobServer) -> None:
    """A server that root does not run, or a machine without cgroups."""
    pool.end()
    hidden = ("mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup")
    pool.prefix = ["unshare", "--mount", "sh", "-c", f'{" ".join(hidden)} && exec "$@"', "sh"]
    pool.start()
    job = ended(pool, "free", {**pool.custom("true", 1), "cpusPerNode": 1, "memoryPerNode": "1g"})
    assert job["executionState"] == "succeeded"
    events = pool.ok("job", "events", "free")
    assert events.count("cpusPerNode, 1, is not enforced: this machine has no cgroups with the cpu controller") == 1
    assert events.count("memoryPerNode, 1024 MB, is not enforced: this machine has no cgroups with the memory") == 1
