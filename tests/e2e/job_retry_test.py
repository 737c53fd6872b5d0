"""A job that failed overnight: its last words, another try, and a copy of what the server knows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from job_server import JobServer

SUBMIT = ("job", "submit", "--logs", "$AZ_BATCHAI_MOUNT_ROOT/external", "--name")


@pytest.fixture
def pool(server: JobServer) -> JobServer:
    server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
    return server


def test_a_failed_job_shows_its_last_lines_and_runs_again(pool: JobServer) -> None:
    ready = pool.share / "ready"
    line = f'for i in $(seq 100); do echo "line $i" >&2; done; test -e "{ready}" || exit 7'
    pool.ok(*SUBMIT, "night", "--", "sh", "-c", line)
    waited = pool.verb("job", "wait", "night")
    assert waited.returncode == 7
    last = waited.stderr[waited.stderr.index("the last lines of stderr.txt (`gyre job logs night` shows all):") :]
    shown = last.splitlines()[1:]  # Of a command, the report of `gyre run` on its end, with its last lines.
    assert len(shown) == 20
    assert any("line 100" in line for line in shown)
    assert any("exit code 7" in line for line in shown)
    assert "line 100" not in pool.verb("job", "wait", "-q", "night").stderr
    ready.touch()
    assert "queued" in pool.ok("job", "retry", "night")
    assert pool.verb("job", "wait", "night").returncode == 0
    assert pool.json("job", "show", "night")["gyre"]["attempts"] == 2
    again = pool.verb("job", "retry", "night")
    assert again.returncode != 0
    assert "it is succeeded, and has not failed" in again.stderr


def test_force_is_refused_where_the_cluster_can_be_used(pool: JobServer) -> None:
    pool.ok(*SUBMIT, "job", "--", "sleep", "1000")
    stopped = pool.verb("job", "stop", "--force", "job")
    assert stopped.returncode != 0
    assert "cluster 'pool' can be used" in stopped.stderr
    pool.ok("job", "stop", "job")


def test_a_backup_of_a_server_that_runs_is_a_server(pool: JobServer, tmp_path: Path) -> None:
    pool.ok(*SUBMIT, "kept", "--", "true")
    pool.ok("job", "wait", "kept")
    backup = tmp_path / "backup.db"
    pool.ok("server", "backup", str(backup))  # Of the server that commands find, whose folder is not the default one.
    assert backup.stat().st_mode & 0o777 == 0o600
    again = pool.verb("server", "backup", str(backup), "--folder", str(pool.folder))
    assert again.returncode != 0
    assert "exists; name a new file" in again.stderr
    pool.ok("job", "delete", "-y", "kept")
    pool.end()
    for file in pool.folder.glob("catalog.db*"):
        file.unlink()
    shutil.copy(backup, pool.folder / "catalog.db")
    (pool.folder / "catalog.db").chmod(0o600)
    pool.start()
    assert pool.json("job", "show", "kept")["properties"]["executionState"] == "succeeded"
    pool.ok(*SUBMIT, "new", "--", "true")
    pool.ok("job", "wait", "new")
