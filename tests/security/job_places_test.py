"""A server that root runs handles the logs and outputs of jobs that run as another account. Whatever a job names, or
puts in the place of its folders, nothing is made or written where that account could not have made or written it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from job_server import JobServer

pytestmark = pytest.mark.needs_root

MOUNT = "$AZ_BATCHAI_MOUNT_ROOT/external"


@pytest.fixture
def victim(server: JobServer) -> Iterator[Path]:
    """A folder that is root's, as /etc/cron.d is, and that must stay empty."""
    folder = server.folder.parent / "cron.d"
    folder.mkdir(mode=0o755)
    yield folder
    assert list(folder.rglob("*")) == []
    assert folder.stat().st_uid == 0


@pytest.fixture
def pool(server: JobServer) -> JobServer:
    server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
    return server


def ends(pool: JobServer, properties: dict[str, object]) -> str:
    """What `gyre job wait` says of a job in the end."""
    name = pool.ok("job", "submit", str(pool.job_file(properties)), "-c", "pool").strip()
    return pool.verb("job", "wait", name).stderr


@pytest.mark.parametrize("prefix", ["CRON", f"{MOUNT}/../../../../..CRON", "$AZ_BATCHAI_JOB_TEMP_DIR/../agent"])
@pytest.mark.parametrize("kind", ["logs", "outputs"])
def test_places_outside_of_mounts_are_refused_before_anything_starts(
    pool: JobServer, victim: Path, prefix: str, kind: str
) -> None:
    place = prefix.replace("CRON", str(victim))
    job = pool.custom("true")
    if kind == "logs":
        job["stdOutErrPathPrefix"] = place
    else:
        job["outputDirectories"] = [{"id": "MODEL", "pathPrefix": place}]
    refused = pool.verb("job", "submit", str(pool.job_file(job)), "-c", "pool")
    assert refused.returncode != 0
    assert "UnusablePath" in refused.stderr or "..'" in refused.stderr or "outside its mounts" in refused.stderr
    assert pool.json("job", "list") == []


def test_a_link_that_a_job_left_on_a_mount_leads_the_next_jobs_logs_nowhere(pool: JobServer, victim: Path) -> None:
    said = ends(pool, pool.custom(f'ln -s {victim} "{MOUNT}/link"'))
    assert "succeeded" in said
    for kind in ("logs", "outputs"):
        job = pool.custom("true")
        if kind == "logs":
            job["stdOutErrPathPrefix"] = f"{MOUNT}/link"
        else:
            job["outputDirectories"] = [{"id": "MODEL", "pathPrefix": f"{MOUNT}/link"}]
        said = ends(pool, job)
        assert "UnusablePath" in said
        assert "user 'nobody', as whom the job runs, cannot make the folder" in said


@pytest.mark.parametrize("secrets", [False, True])  # With secrets the node's agent writes the logs, else `gyre launch`.
def test_a_log_folder_that_the_preparation_replaces_by_a_link_is_not_written_through(
    pool: JobServer, victim: Path, secrets: bool
) -> None:
    job = pool.custom("echo out; echo err >&2")
    swap = f'cd "$AZ_BATCHAI_STDOUTERR_DIR/.." && mv stdouterr old && ln -s {victim} stdouterr'
    job["jobPreparation"] = {"commandLine": swap}
    if secrets:
        job["secrets"] = [{"name": "TOKEN", "value": "hunter2-hunter2"}]
    said = ends(pool, job)
    assert "failed" in said
    assert "cannot write" in said  # The reason depends on when the link appears: no such file, or permission denied.


def test_a_folder_of_a_mount_that_only_root_may_change_still_takes_the_jobs_files(pool: JobServer) -> None:
    pool.share.chmod(0o755)
    said = ends(pool, pool.custom("echo kept"))
    assert "succeeded" in said
    [log] = pool.share.rglob("stdout.txt")
    assert log.read_text() == "kept\n"
    own = log.parent.parent
    assert own.stat().st_uid != 0
    assert {folder.stat().st_uid for folder in own.parents if pool.share in folder.parents} == {0}
