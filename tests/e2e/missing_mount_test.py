"""A mount that leads nowhere is reported when the cluster is created, or else by the job that needs it, by name."""

from __future__ import annotations

from job_server import JobServer

NOT_THE_JOBS = 125


def test_a_cluster_with_a_missing_directory_is_refused_when_it_is_made(server: JobServer) -> None:
    """It was made, and each of its jobs failed with InternalError and exit code 255."""
    missing = server.share / "missing"
    words = ["cluster", "create", "pool", "-t", "1", "--mount", f"external={missing}"]
    refused = server.verb(*words)
    assert refused.returncode == 1
    assert f"mount 'external': there is no directory {missing} on the server's machine" in refused.stderr
    assert server.json("cluster", "list") == []
    missing.touch()
    assert f"{missing} is not a directory" in server.verb(*words).stderr
    missing.unlink()
    missing.mkdir()
    server.ok(*words)


def test_a_directory_that_vanishes_later_is_named_by_the_job_that_needs_it(server: JobServer) -> None:
    data = server.share / "data"
    data.mkdir()
    server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={data}")
    data.rmdir()
    done = server.verb("job", "submit", "-f", "-n", "train", "--", "true")
    assert done.returncode == NOT_THE_JOBS, done.stderr
    last = done.stderr.splitlines()[-1]
    assert "UnusablePath: node " in last
    assert f"cannot use mount 'external' of the cluster: there is no directory {data}" in last
    assert server.verb("job", "wait", "train").returncode == NOT_THE_JOBS
    assert "InternalError" not in server.ok("job", "why", "train")
