"""The process of an attempt runs as the job's account, so that a job can do to it whatever it likes. It harms itself
alone: its node takes the next job, nothing is written outside of its own places, and its end is told. For a server that
root runs, and for one of a plain user."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from job_server import JobServer
from other_user import NOBODY
from running_job import wait_until

import gyre.jobs

pytestmark = pytest.mark.needs_root  # To run a server as another user.

ADA = 20_401
MOUNT = "$AZ_BATCHAI_MOUNT_ROOT/external"

# In a job: the process of its attempt, by the mark that both carry.
FIND = """
import ctypes, os, signal, sys, time

def attempt_process():
    mark = b"GYRE_JOB_ATTEMPT=" + os.environb[b"GYRE_JOB_ATTEMPT"]
    for name in os.listdir("/proc"):
        try:
            words = open(f"/proc/{name}/cmdline", "rb").read().split(b"\\0")
            if words[1:2] == [b"attempt"] and mark in open(f"/proc/{name}/environ", "rb").read().split(b"\\0"):
                return int(name)
        except OSError:
            continue
    return 0

def say(text):
    print(text, flush=True)
"""


def started(server: JobServer, evidence: list[Path]) -> JobServer:
    evidence.append(server.log)
    server.start()
    server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
    return server


@pytest.fixture
def pool_of_root(gyre: Path, tmp_path: Path, evidence: list[Path]) -> Iterator[JobServer]:
    server = started(JobServer(gyre, tmp_path), evidence)
    yield server
    server.close()


@pytest.fixture(params=["root", "user"])
def pool(request: pytest.FixtureRequest, gyre: Path, tmp_path: Path, evidence: list[Path]) -> Iterator[JobServer]:
    as_root = request.param == "root"
    server = JobServer(gyre, tmp_path) if as_root else JobServer(gyre, tmp_path, {"ada": ADA}, "ada")
    yield started(server, evidence)
    server.close()


def submit_properties(pool: JobServer, properties: dict[str, object]) -> str:
    file = pool.share / "job.json"  # Which its account can read.
    file.write_text(json.dumps({"properties": properties}))
    return pool.ok("job", "submit", str(file), "-c", "pool").strip()


def submit(pool: JobServer, program: str, **properties: object) -> str:
    (pool.share / "program.py").write_text(FIND + program)
    return submit_properties(pool, pool.custom(f'exec /usr/bin/python3 "{MOUNT}/program.py"') | properties)


def said_at_the_end(pool: JobServer, name: str) -> str:
    return pool.verb("job", "wait", name).stderr


def output(pool: JobServer, name: str) -> str:
    files = [file for file in pool.share.rglob("stdout.txt") if f"/{name}/" in str(file)]
    return files[0].read_text() if files else ""


def takes_the_next_job(pool: JobServer) -> None:
    name = submit(pool, 'say("next")')
    said = said_at_the_end(pool, name)
    assert "succeeded" in said, said
    assert output(pool, name) == "next\n"


def attempt_processes(pool: JobServer) -> list[int]:
    """Of this server."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"attempt\0--agent-fd" not in (folder / "cmdline").read_bytes():
                continue
            parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            if str(pool.folder).encode() in Path(f"/proc/{parent}/cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_the_process_of_an_attempt_has_the_jobs_account_and_no_other_rights(pool: JobServer) -> None:
    name = submit(pool, 'say("begun")\ntime.sleep(1000)')
    wait_until("the job runs", lambda: "begun" in output(pool, name))
    [process] = attempt_processes(pool)
    status = Path(f"/proc/{process}/status").read_text()
    for line in ("Uid", "Gid"):
        [ids] = [each.split()[1:] for each in status.splitlines() if each.startswith(line)]
        assert set(ids) == {str(ADA if pool.run_as else NOBODY)}
    [capabilities] = [each.split()[1] for each in status.splitlines() if each.startswith("CapEff")]
    assert int(capabilities, 16) == 0
    # Of the agent it has one descriptor and a pipe for its last words; its log, say, a job could cut off.
    kinds = {os.readlink(fd).split(":")[0] for fd in Path(f"/proc/{process}/fd").iterdir()}
    assert kinds <= {"/dev/null", "pipe", "socket", "anon_inode"}
    pool.ok("job", "stop", name)
    assert "terminated" in said_at_the_end(pool, name)


def test_a_job_whose_attempt_process_is_killed_loses_no_output(pool: JobServer) -> None:
    kill_once = """
say("before")
first = attempt_process()
os.kill(first, signal.SIGKILL)
while attempt_process() in (0, first):
    time.sleep(0.01)
say("after")
"""
    # With a secret the attempt's process writes the logs, else `gyre launch`.
    for secrets in ([], [{"name": "TOKEN", "value": "hunter2-hunter2"}]):
        name = submit(pool, kill_once, secrets=secrets)
        said = said_at_the_end(pool, name)
        assert "succeeded" in said, said
        assert output(pool, name) == "before\nafter\n"
        assert "has ended (SIGKILL) and is started again" in pool.ok("job", "events", name)
    takes_the_next_job(pool)


def test_a_job_that_kills_its_attempt_process_again_and_again_fails(pool: JobServer) -> None:
    name = submit(
        pool,
        """
while True:
    if process := attempt_process():
        os.kill(process, signal.SIGKILL)
    time.sleep(0.01)
""",
    )
    wait_until("the attempt has failed", lambda: "has ended 4 times (SIGKILL)" in pool.ok("job", "events", name))
    pool.verb("job", "stop", name)  # Where the service has begun another attempt.
    said_at_the_end(pool, name)
    takes_the_next_job(pool)


@pytest.mark.parametrize(
    "attack",
    [
        "os.kill(attempt_process(), signal.SIGSTOP)",
        # A tracer of its own, which outlives the job's command, and keeps the process even when it is dead.
        """
process = attempt_process()
if os.fork() == 0:
    os.setsid()
    os.environ.clear()
    libc = ctypes.CDLL(None)
    say(f"traced {libc.ptrace(16, process, None, None)}")  # PTRACE_ATTACH
    os.closerange(0, 3)
    time.sleep(60)
time.sleep(0.5)
""",
    ],
    ids=["stopped", "traced"],
)
def test_a_job_whose_attempt_process_is_held_can_be_stopped_like_any_other(pool: JobServer, attack: str) -> None:
    name = submit(pool, attack + '\nsay("held")\ntime.sleep(1000)')
    wait_until("the process is held", lambda: "held" in output(pool, name))
    begun = time.monotonic()
    pool.ok("job", "stop", name)
    assert "terminated" in said_at_the_end(pool, name)
    assert time.monotonic() - begun < 60
    assert attempt_processes(pool) == []
    takes_the_next_job(pool)


@pytest.mark.parametrize("also", ["", "os.kill(os.getppid(), signal.SIGSTOP)"], ids=["attempt", "attempt_and_launch"])
def test_a_job_that_stops_the_process_of_its_attempt_ends_all_the_same(pool: JobServer, also: str) -> None:
    """It stayed "running" for ever, and its node was lost to others. The job's parent is `gyre launch`."""
    name = submit(pool, f"say('begun')\nos.kill(attempt_process(), signal.SIGSTOP)\n{also}\nsay('done')")
    said = said_at_the_end(pool, name)
    assert "succeeded" in said, said
    assert output(pool, name) == "begun\ndone\n"
    assert "was stopped (SIGSTOP, or a debugger) and" in pool.ok("job", "show", name)
    takes_the_next_job(pool)


def test_a_folder_that_is_swapped_for_a_link_again_and_again_leads_no_log_elsewhere(pool: JobServer) -> None:
    victim = pool.folder.parent / "cron.d"
    victim.mkdir(mode=0o755)
    swap = f"""
folder = os.environ["AZ_BATCHAI_STDOUTERR_DIR"]
end = time.monotonic() + 2
while time.monotonic() < end:
    os.rename(folder, folder + ".own")
    os.symlink({str(victim)!r}, folder)
    say("to the log")
    os.unlink(folder)
    os.rename(folder + ".own", folder)
"""
    name = submit(pool, swap, secrets=[{"name": "TOKEN", "value": "hunter2-hunter2"}])
    time.sleep(1)
    os.kill(attempt_processes(pool)[0], signal.SIGKILL)  # The next one opens the logs again.
    said_at_the_end(pool, name)
    assert list(victim.rglob("*")) == []
    takes_the_next_job(pool)


@pytest.mark.parametrize("kind", ["fifo", "device", "hard link"])
@pytest.mark.parametrize("secrets", [False, True])
def test_a_log_that_is_no_file_of_the_jobs_is_not_written(pool: JobServer, kind: str, secrets: bool) -> None:
    precious = pool.folder.parent / "precious"
    precious.write_text("root's\n")
    precious.chmod(0o644)
    make = {
        "fifo": 'mkfifo "$F"',
        "device": 'ln -s /dev/full "$F"',
        "hard link": f'ln {precious} "$F" || ln -s {precious} "$F"',
    }[kind]
    job = pool.custom("echo out")
    job["jobPreparation"] = {"commandLine": f'F="$AZ_BATCHAI_STDOUTERR_DIR/stdout.txt"; {make}'}
    if secrets:
        job["secrets"] = [{"name": "TOKEN", "value": "hunter2-hunter2"}]
    name = submit_properties(pool, job)
    begun = time.monotonic()
    said = said_at_the_end(pool, name)
    assert "failed" in said, said
    assert time.monotonic() - begun < 60
    assert precious.read_text() == "root's\n"
    takes_the_next_job(pool)


def archive_of(*entries: tuple[str, bytes, str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, kind, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
    return stream.getvalue()


@pytest.mark.parametrize(
    "entry",
    [
        ("null", tarfile.CHRTYPE, ""),
        ("pipe", tarfile.FIFOTYPE, ""),
        ("out", tarfile.SYMTYPE, "/etc"),
        ("passwd", tarfile.LNKTYPE, "/etc/passwd"),
        ("../../../escaped", tarfile.REGTYPE, ""),
    ],
    ids=lambda entry: entry[0].split("/")[-1],
)
def test_an_archive_with_more_than_files_is_refused_and_unpacked_nowhere(
    pool_of_root: JobServer, entry: tuple[str, bytes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of_root
    archive = archive_of(("first", tarfile.REGTYPE, ""), entry)
    uploaded = SimpleNamespace(sha256=hashlib.sha256(archive).hexdigest(), data=archive)
    monkeypatch.setattr("gyre.core._core.archive_code", lambda _: uploaded)  # As whoever speaks HTTP could.
    with (
        gyre.jobs.Client(str(pool.folder / "server.json")) as client,
        pytest.raises(gyre.jobs.ServerError, match="the archive of code is not usable") as refused,
    ):
        client.submit(pool.custom("true"), code=".")
    assert entry[0] in str(refused.value)
    assert not list(pool.folder.parent.rglob("escaped"))
    assert not list(pool.folder.glob("code/*/*.tar"))
    takes_the_next_job(pool)


def test_a_folder_that_a_job_has_closed_and_dug_deep_does_not_keep_the_next_job_away(pool: JobServer) -> None:
    name = submit(
        pool,
        """
os.chdir(os.environ["AZ_BATCHAI_JOB_TEMP"])
for _ in range(1500):
    os.mkdir("d", 0o700)
    os.chdir("d")
os.chdir(os.environ["AZ_BATCHAI_JOB_TEMP"])
os.mkdir("closed")
open("closed/file", "w").close()
os.chmod("closed", 0)
""",
    )
    assert "succeeded" in said_at_the_end(pool, name)
    takes_the_next_job(pool)
    assert not list(pool.folder.glob(f"nodes/*/jobs/{name}/d"))


def test_what_a_job_leaves_in_the_place_of_its_sockets_hurts_nobody(pool: JobServer) -> None:
    name = submit(
        pool,
        """
import socket
private = os.path.dirname(os.environ["GYRE_JOB_SHELLS"])
os.unlink(private + "/ranks.sock")
listener = socket.socket(socket.AF_UNIX)
listener.bind(private + "/ranks.sock")
listener.listen(0)
if os.fork() == 0:
    os.setsid()
    os.environ.clear()
    time.sleep(30)
os.kill(attempt_process(), signal.SIGKILL)
time.sleep(1000)
""",
    )
    wait_until("the attempt process was killed", lambda: "is started again" in pool.ok("job", "events", name))
    pool.verb("job", "stop", name)
    said_at_the_end(pool, name)
    takes_the_next_job(pool)


def test_ranks_of_a_job_are_not_below_the_agent_that_keeps_them(pool: JobServer) -> None:
    """kill -9 of the agent ends the attempt's process with it, and neither ends the job."""
    name = submit(pool, 'say("begun")\ntime.sleep(4)\nsay("last")')
    wait_until("the job runs", lambda: "begun" in output(pool, name))
    [process] = attempt_processes(pool)
    agent = int(next(pool.folder.glob("nodes/*/agent.lock")).read_text())
    os.kill(agent, signal.SIGKILL)
    wait_until("the attempt's process has gone", lambda: not Path(f"/proc/{process}").exists())
    assert "succeeded" in said_at_the_end(pool, name)
    assert output(pool, name) == "begun\nlast\n"
