"""One user must not take a job server from the others: thousands of followers, connections that say nothing, bodies
that never end. On a server that root runs, and on one of a plain user."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import select
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_server import JobServer

pytestmark = pytest.mark.needs_root  # To have accounts.

ACCOUNTS = {"max": 20_000, "ada": 20_001}
HERS = {"GYRE_WORKSPACE": "hers"}
STREAMS = 512  # Of one user: ServerLimits.


@pytest.fixture(params=["", "max"], ids=["run_by_root", "run_by_max"])
def server(request: pytest.FixtureRequest, gyre: Path, tmp_path: Path, evidence: list[Path]) -> Iterator[JobServer]:
    started = JobServer(gyre, tmp_path, ACCOUNTS, request.param)
    evidence.append(started.log)
    yield started
    started.close()


def begin(server: JobServer, *options: str) -> None:
    server.start(*options)
    server.ok("workspace", "create", "hers")
    server.ok("user", "create", "ada", *(["--trusted"] if server.run_as else []))
    server.ok("workspace", "add-owner", "hers", "ada")
    server.ok("cluster", "create", "pool", "-w", "hers", "-t", "1", "--mount", f"external={server.share}")


def connect(server: JobServer, account: str) -> socket.socket:
    """A connection that the server sees as the account's."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    os.seteuid(ACCOUNTS[account])
    try:
        connection.connect(server.url.removeprefix("unix:"))
    finally:
        os.seteuid(0)
    return connection


def answer_to(connection: socket.socket, request: str) -> str:
    """The head of the answer, and what comes with it."""
    connection.sendall(request.encode())
    return connection.recv(65536).decode()


@pytest.fixture
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def endless_job(server: JobServer) -> str:
    line = "echo begun; while [ ! -e $AZ_BATCHAI_MOUNT_ROOT/external/go ]; do sleep 0.1; done"
    file = server.share / "job.json"  # Where ada can read it.
    file.write_text(json.dumps({"properties": server.custom(line)}))
    done = server.verb("job", "submit", "-n", "endless", str(file), account="ada", env=HERS)
    assert done.returncode == 0, done.stderr
    logs = "/workspaces/hers/experiments/default/jobs/endless/files/stdouterr/stdout.txt"
    deadline = time.monotonic() + 60
    while "begun" not in server.verb("job", "logs", "endless", env=HERS).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return f"GET {logs}?follow=true HTTP/1.1\r\nHost: h\r\n\r\n"


def end_endless_job(server: JobServer) -> None:
    """Before the server and its folders go: nobody else would end it."""
    (server.share / "go").touch()
    server.ok("job", "wait", "endless", "-w", "hers")


@pytest.mark.usefixtures("many_files")
def test_of_a_thousand_followers_of_one_user_those_beyond_the_share_are_refused(server: JobServer) -> None:
    begin(server)
    follow = endless_job(server)
    followers: list[socket.socket] = []
    heads: list[str] = []
    for _ in range(1000):
        followers.append(connect(server, "ada"))
        heads.append(answer_to(followers[-1], follow))
    assert [head.split(" ", 2)[1] for head in heads] == ["200"] * STREAMS + ["429"] * (1000 - STREAMS)
    assert f"user 'ada' follows {STREAMS} logs and lists of events at once already" in heads[-1]
    begun = time.monotonic()
    server.ok("job", "list", "-w", "hers")
    assert server.verb("job", "list", account="ada", env=HERS).returncode == 0
    assert time.monotonic() - begun < 5
    end_endless_job(server)
    for follower in followers:
        follower.close()


@pytest.mark.usefixtures("many_files")
def test_idle_connections_make_nobody_wait_where_there_are_few_descriptors(server: JobServer) -> None:
    """With 256 descriptors, 400 of them made `gyre job list` wait for 13 s."""
    server.prefix = [*server.prefix, "prlimit", "--nofile=256:256"]
    begin(server)
    assert "the system lets this server open 256 files" in server.log.read_text()
    idle = [connect(server, "ada") for _ in range(400)]
    for account in ("", "ada"):
        begun = time.monotonic()
        assert server.verb("job", "list", account=account, env=HERS).returncode == 0
        assert time.monotonic() - begun < 5, account
    for connection in idle:
        connection.close()


def test_followers_beyond_the_descriptors_wait_and_get_every_byte(server: JobServer) -> None:
    """With 256 descriptors, 60 of 200 followers ended with "Too many open files"."""
    server.prefix = [*server.prefix, "prlimit", "--nofile=256:256"]
    begin(server)
    endless_job(server)
    followers = [server.start_verb("job", "logs", "-f", "endless", "-w", "hers") for _ in range(100)]
    time.sleep(3)  # While some of them find no room.
    (server.share / "go").touch()
    outputs = [follower.communicate(timeout=100) for follower in followers]
    assert [follower.returncode for follower in followers] == [0] * 100, {errors for _, errors in outputs}
    assert {output for output, _ in outputs} == {b"begun\n"}


def test_a_body_that_comes_too_slowly_is_cut_off(server: JobServer) -> None:
    begin(server)
    slow = connect(server, "ada")
    head = "PUT /workspaces/hers/experiments/default/jobs/slow HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n"
    slow.sendall(head.encode())
    begun = time.monotonic()
    slow.setblocking(False)
    said = b""
    while time.monotonic() - begun < 40:
        try:
            said = slow.recv(65536)
            break
        except BlockingIOError:
            slow.send(b"x")
            time.sleep(0.5)
    assert said.startswith(b"HTTP/1.1 408 "), said
    assert b"took too long to arrive" in said
    assert 8 < time.monotonic() - begun < 40


def test_the_audit_log_says_who_did_what_from_where_and_no_secret(server: JobServer) -> None:
    begin(server)
    token = server.ok("user", "renew-token", "ada").strip()
    submit = ("job", "submit", "-n", "j", "--secret", "KEY", "--", "true")
    done = server.verb(*submit, account="ada", env=HERS | {"KEY": "hunter2-hunter2"})
    assert done.returncode == 0, done.stderr
    server.verb("cluster", "delete", "pool", "-y", account="ada", env=HERS)
    log = server.folder / "audit.log"
    assert log.stat().st_mode & 0o777 == 0o600
    text = log.read_text()
    assert token not in text
    assert "hunter2" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "user", "from", "what", "status", "outcome"} <= line.keys() for line in lines)
    of_ada = [(line["what"], line["outcome"]) for line in lines if line["user"] == "ada"]
    assert ("PUT /workspaces/hers/experiments/default/jobs/j", "ok") in of_ada
    assert of_ada[-1] == ("DELETE /workspaces/hers/clusters/pool", "NotAdministrator")
    assert {line["from"].rpartition(" ")[2] for line in lines if line["user"] == "ada"} == {"20001"}


def test_the_shares_of_a_user_are_options_of_the_server(server: JobServer) -> None:
    """They were constants, so that nobody could fit them to a small machine or a large team."""
    limits = ("requests=40", "followers=2", "bodies=1", "queued-jobs=3", "queued-jobs=2")
    begin(server, *(word for limit in limits for word in ("--limit", limit)))
    follow = endless_job(server)
    followers = [connect(server, "ada") for _ in range(3)]
    heads = [answer_to(follower, follow) for follower in followers]
    assert [head.split(" ", 2)[1] for head in heads] == ["200", "200", "429"]
    put = "PUT /workspaces/hers/experiments/default/jobs/{} HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"
    bodies = [connect(server, "ada") for _ in range(2)]
    for body in bodies:
        body.sendall(put.format("half").encode() + b"{")
    refused = select.select(bodies, [], [], 8)[0]  # Whichever came second; after 10 s the other one is cut off.
    assert len(refused) == 1
    assert b"TooManyBodies" in refused[0].recv(65536)
    for body in bodies:
        body.close()
    for follower in followers:
        follower.close()
    submit = ("job", "submit", "--", "true")  # They wait for the node of the endless one.
    done = [server.verb(*submit, account="ada", env=HERS) for _ in range(3)]
    assert [each.returncode == 0 for each in done] == [True, True, False], done
    assert "2 jobs of user 'ada' wait already" in done[2].stderr
    busy = connect(server, "ada")
    busy.sendall(b"GET /workspaces HTTP/1.1\r\nHost: h\r\n\r\n" * 400)
    answers = b""
    while b"TooManyRequests" not in answers:
        answers += busy.recv(65536)
    busy.close()
    end_endless_job(server)


def submit_code(server: JobServer, name: str, megabytes: int) -> subprocess.CompletedProcess[str]:
    """As ada, whose folder of code has one file of so many random MB."""
    code = server.share / f"code-{name}"
    code.mkdir()
    (code / "weights.bin").write_bytes(os.urandom(megabytes << 20))
    return server.verb("job", "submit", "-n", name, "--code", str(code), "--", "true", account="ada", env=HERS)


def test_a_user_has_a_share_of_the_code_that_is_kept(server: JobServer) -> None:
    """One user filled the server's disk with code, and nobody could do anything any more."""
    begin(server, "--limit", "code=5MB")
    assert submit_code(server, "first", 3).returncode == 0
    refused = submit_code(server, "second", 40)
    assert refused.returncode != 0
    assert "more than the 5242880 bytes that one user may have" in refused.stderr, refused.stderr
    assert len([line for line in refused.stderr.splitlines() if "uploads" not in line]) == 1, refused.stderr
    assert submit_code(server, "third", 3).returncode != 0
    spools = [place for place in Path(f"/proc/{pid_of(server)}/fd").iterdir() if "(deleted)" in link_of(place)]
    assert not [place for place in spools if str(server.folder) in link_of(place)]
    server.ok("job", "wait", "first", "-w", "hers")
    server.ok("job", "delete", "first", "-y", "-w", "hers")
    deadline = time.monotonic() + 60
    while list(server.folder.glob("code/*/*")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    done = submit_code(server, "fourth", 3)
    assert done.returncode == 0, done.stderr


def pid_of(server: JobServer) -> int:
    assert server.process is not None
    return server.process.pid


def link_of(place: Path) -> str:
    try:
        return os.readlink(place)
    except OSError:
        return ""


def test_uploads_leave_a_reserve_of_the_disk_and_everything_else_goes_on(server: JobServer) -> None:
    begin(server, "--keep-free", str(2 * shutil.disk_usage(server.folder.parent).free))
    endless_job(server)
    refused = submit_code(server, "code", 1)
    assert refused.returncode != 0
    assert "of which it keeps" in refused.stderr
    assert "--keep-free" in refused.stderr
    done = server.verb("job", "submit", "-n", "plain", "--", "true", account="ada", env=HERS)
    assert done.returncode == 0, done.stderr
    assert server.verb("job", "stop", "plain", account="ada", env=HERS).returncode == 0
    end_endless_job(server)
    server.ok("job", "list", "-w", "hers")
    server.ok("job", "delete", "plain", "-y", "-w", "hers")


def test_new_jobs_leave_a_reserve_of_the_disk_too(server: JobServer) -> None:
    """A user's queued jobs could fill it: each may be a megabyte long."""
    begin(server)
    endless_job(server)
    server.end()
    server.start("--keep-free", "9000TB")  # A tenth of it is more than any disk has.
    refused = server.verb("job", "submit", "-n", "plain", "--", "true", account="ada", env=HERS)
    assert refused.returncode != 0
    assert "it takes no more jobs now" in refused.stderr
    server.ok("job", "list", "-w", "hers")
    end_endless_job(server)


def test_an_archive_that_no_node_could_unpack_is_refused_by_the_server(server: JobServer) -> None:
    """It was kept, and the job that named it failed with an InternalError."""
    begin(server)
    for name, problem, kind in (
        ("../evil", "lies outside", tarfile.REGTYPE),
        ("disk", "neither a file", tarfile.BLKTYPE),
        ("link", "a link to '/etc/passwd'", tarfile.SYMTYPE),
        ("hard", "neither a file", tarfile.LNKTYPE),
        ("", "not usable", b""),
    ):
        archive = io.BytesIO()
        if name:
            with tarfile.open(fileobj=archive, mode="w") as tar:
                info = tarfile.TarInfo(name)
                info.type = kind
                info.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
                tar.addfile(info)
        else:
            archive.write(b"this is no archive" * 100)
        body = archive.getvalue()
        path = f"/workspaces/hers/code/{hashlib.sha256(body).hexdigest()}"
        connection = connect(server, "ada")
        connection.sendall(f"PUT {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = connection.recv(65536).decode()
        connection.close()
        assert answer.startswith("HTTP/1.1 400 "), (name, answer)
        assert "UnusableCode" in answer
        assert problem in answer, (name, answer)
    assert not list(server.folder.glob("code/*/*.tar"))


def test_logs_of_a_job_end_at_the_limit_and_say_so(server: JobServer) -> None:
    """`yes` filled the disk of its node."""
    begin(server, "--limit", "job-logs=1MB")
    line = "yes some output & while [ ! -e $AZ_BATCHAI_MOUNT_ROOT/external/go ]; do sleep 0.1; done; kill $!; echo end"
    file = server.share / "job.json"
    file.write_text(json.dumps({"properties": server.custom(line)}))
    done = server.verb("job", "submit", "-n", "loud", str(file), account="ada", env=HERS)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 60
    while "the job's logs are cut off" not in server.ok("job", "show", "loud", "-w", "hers"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (server.share / "go").touch()
    server.ok("job", "wait", "loud", "-w", "hers")
    logs = server.ok("job", "logs", "loud", "-w", "hers")
    assert logs.startswith("some output\n")
    assert "[gyre: this log is cut off here" in logs
    (log,) = server.share.glob("**/stdout.txt")
    assert log.stat().st_size < 2 << 20
