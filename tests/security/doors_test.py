"""The doors of the job service: who may do what, as docs/guide/security.md says it. Each test is an attack, and the
message that stops it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_server import JobServer


@pytest.fixture
def server(gyre: Path, tmp_path: Path, evidence: list[Path]) -> Iterator[JobServer]:
    """A server whose machine has an account for ada, where root can make that so."""
    started = JobServer(gyre, tmp_path, {"ada": 20_001} if os.geteuid() == 0 else None)
    evidence.append(started.log)
    started.start()
    yield started
    started.close()


@pytest.fixture
def ada(server: JobServer) -> dict[str, str]:
    """The environment of an owner of the workspace `hers`, in which there is a cluster."""
    server.ok("workspace", "create", "hers")
    server.ok("user", "create", "ada", "--to", "ada.json")
    server.ok("workspace", "add-owner", "hers", "ada")
    server.ok("cluster", "create", "pool", "-w", "hers", "-t", "1", "--mount", f"external={server.share}")
    return {"GYRE_SERVER": str(server.tmp_path / "ada.json"), "GYRE_WORKSPACE": "hers"}


def test_an_owner_makes_no_cluster_and_so_no_setup_task_mount_or_driver_option(
    server: JobServer, ada: dict[str, str], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    attacks = [
        ["create", "mine", "-t", "1", "--setup-task", f"touch {mark}", "--setup-task-output", str(server.share)],
        ["create", "mine", "-t", "1", "--mount", "external=/root"],
        ["create", "mine", "-t", "1", "--driver", "slurm", "--driver-option", f"shared_folder={server.share}"],
        ["resize", "pool", "-t", "0", "--when-busy", "terminate"],
        ["delete", "pool", "-y"],
    ]
    for words in attacks:
        refused = server.verb("cluster", *words, env=ada)
        assert refused.returncode == 1, words
        assert "only administrators make, change and delete clusters" in refused.stderr
    assert not mark.exists()
    assert "pool" in server.ok("cluster", "list", env=ada)
    assert server.verb("job", "submit", "-c", "pool", "-f", "--", "true", env=ada).returncode == 0
