"""A job server that was killed must start again while its disk is full: people look then why nothing goes on. What runs
meanwhile loses no output without a word."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from job_server import JobServer
from running_job import wait_until

MOUNT = 'mount --make-rprivate / && mount -t tmpfs -o size=24m,mode=1777 none /tmp && exec "$@"'
FULL = "the disk is full; nothing was changed"
LOGS = "$AZ_BATCHAI_MOUNT_ROOT/external"
# The reserve that a server keeps free is larger than the disks here.
ON_A_SMALL_DISK = ("--keep-free", "0")


def fill(folder: Path) -> Path:
    """To the last byte."""
    file = folder / "fill"
    with file.open("wb", buffering=0) as stream:
        for size in (1 << 20, 4096, 1):
            try:
                while stream.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return file


def goes_on_after(server: JobServer, with_signal: int, name: str, index_is_gone: bool) -> None:
    """The server ends while a job runs, and starts on a full disk."""
    submit = ("job", "submit", "-c", "pool", "--logs", LOGS)
    gates = {one: server.share / f"{one}-go" for one in (name, f"{name}-next")}
    for one, gate in gates.items():
        line = f'echo begun >> "{server.share}/{one}"; until [ -e "{gate}" ]; do sleep 0.1; done; echo last'
        server.ok(*submit, "--name", one, "--", "/bin/sh", "-c", line)
    wait_until("both jobs run", lambda: all((server.share / one).exists() for one in gates))
    server.end(with_signal)
    gates[f"{name}-next"].touch()  # The next server has its end to record.
    states = server.folder.glob("nodes/*/agent/current.json")
    wait_until("one has ended", lambda states=list(states): any('"record"' in one.read_text() for one in states))
    if index_is_gone:
        (server.folder / "catalog.db-shm").unlink()
    filling = fill(server.share)
    begin = server.log.stat().st_size
    server.start(*ON_A_SMALL_DISK)
    assert server.json("job", "show", name)["properties"]["executionState"] == "running"
    assert server.json("job", "events", name)
    assert server.ok("job", "files", name)
    refused = server.verb(*submit, "--name", f"{name}-refused", "--", "true")
    assert refused.returncode != 0
    assert FULL in refused.stderr, refused.stderr
    assert FULL in server.verb("job", "stop", name).stderr
    wait_until("the server says so", lambda: "only answers questions for the moment" in server.log.read_text()[begin:])
    assert server.log.read_text()[begin:].count("only answers questions") <= 2  # Once each: decisions, and a driver.
    filling.unlink()
    gates[name].touch()
    for one in gates:
        assert server.verb("job", "wait", one).returncode == 0, server.log.read_text()[begin:]
        assert (server.share / one).read_text() == "begun\n"
    server.ok(*submit, "--name", f"{name}-after", "--", "true")
    server.ok("job", "wait", f"{name}-after")
    assert "the job service goes on" in server.log.read_text()[begin:]


def queue_on_full_nodes(gyre: Path, home: Path) -> None:
    """The disk of the nodes fills up while jobs are queued for them; that of the server has room."""
    server = JobServer(gyre, home)
    nodes = server.folder / "nodes"
    nodes.mkdir(parents=True)
    nodes.parent.chmod(0o711)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0755", "none", str(nodes)], check=True)
    server.start(*ON_A_SMALL_DISK)
    try:
        server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
        gate = server.share / "go"
        names = [f"job-{i}" for i in range(6)]
        for name in names:
            line = f'echo begun >> "{server.share}/{name}"; until [ -e "{gate}" ]; do sleep 0.1; done'
            server.ok("job", "submit", "-c", "pool", "--logs", LOGS, "--name", name, "--", "/bin/sh", "-c", line)
        wait_until("two jobs run", lambda: sum((server.share / name).exists() for name in names) == 2)
        filling = fill(nodes)
        gate.touch()
        wait_until("a job has found no room", lambda: any("noRoom" in server.ok("job", "events", n) for n in names))
        failed = server.json("job", "list", "--state", "failed")
        assert failed == [], [job["properties"]["executionInfo"]["errors"] for job in failed]
        filling.unlink()
        for name in names:
            assert server.verb("job", "wait", name).returncode == 0, server.ok("job", "events", name)
            assert (server.share / name).read_text() == "begun\n"
    finally:
        subprocess.run(["umount", "-l", str(nodes)], check=False)
        server.close()


def server_on_a_full_disk(gyre: Path, home: Path) -> None:
    server = JobServer(gyre, home)
    server.start("--lease", "60", *ON_A_SMALL_DISK)
    try:
        server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
        goes_on_after(server, signal.SIGKILL, "killed", index_is_gone=False)
        goes_on_after(server, signal.SIGKILL, "killed-in-a-container", index_is_gone=True)
        goes_on_after(server, signal.SIGTERM, "ended", index_is_gone=False)
    finally:
        server.close()


def output_of_a_run(gyre: Path, home: Path) -> None:
    """Ranks write more than the launcher keeps, while the disk of its output is full."""
    filling = fill(Path("/tmp"))
    said, lines = home / "said", 20_000
    with Path("/tmp/out").open("wb") as out, said.open("wb") as err:
        ranks = ("-n", "2", "--", "sh", "-c", f'seq -f "line %.0f of $GYRE_RANK" {lines}')
        run = subprocess.Popen([str(gyre), "run", *ranks], stdout=out, stderr=err)
        wait_until("gyre run says so", lambda: "cannot write the ranks' output to stdout" in said.read_text())
        assert run.poll() is None
        filling.unlink()
        assert run.wait(60) == 0
    wanted = [f"[{rank}] line {line} of {rank}" for rank in range(2) for line in range(1, lines + 1)]
    assert sorted(Path("/tmp/out").read_text().splitlines()) == sorted(wanted)


def follow_on_a_full_disk(server: JobServer, home: Path) -> None:
    """The disk of a follower's stdout is full for a while."""
    folder, said = home / "of-follower", home / "said"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], check=True)
    filling = fill(folder)
    words = (str(server.gyre), "job", "submit", "-c", "pool", "--follow", "--", "seq", "-f", "line %.0f", "1000")
    with (folder / "out").open("wb") as out, said.open("wb") as errors:
        follower = subprocess.Popen(words, stdout=out, stderr=errors, env=server.environment)
        wait_until("it says so", lambda: "cannot write the job's output to stdout" in said.read_text())
        filling.unlink()
        assert follower.wait(60) == 0, said.read_text()
    wanted = "".join(f"[0] line {line}\n" for line in range(1, 1001))
    assert (folder / "out").read_text() == wanted
    subprocess.run(["umount", str(folder)], check=True)


def output_of_a_job(gyre: Path, home: Path) -> None:
    """The disk of a job's logs stays full until its end."""
    server = JobServer(gyre, home)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "none", str(server.share)], check=True)
    server.start(*ON_A_SMALL_DISK)
    try:
        server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
        follow_on_a_full_disk(server, home)
        (server.share / "go").touch()
        line = f'echo begun; while [ -e "{server.share}/go" ]; do sleep 0.1; done; seq 20000'
        launch = ("--", str(gyre), "run", "-n", "1", "--", "/bin/sh", "-c", line)
        server.ok("job", "submit", "-c", "pool", "--logs", LOGS, "--name", "job", *launch)
        wait_until("it runs", lambda: "begun" in server.ok("job", "logs", "job"))
        fill(server.share)
        (server.share / "go").unlink()
        assert server.verb("job", "wait", "job").returncode == 0, server.ok("job", "events", "job")
        events = server.ok("job", "events", "job")
        assert re.search(r"\d{5,6} bytes of stdout are missing, for which the disk had no room", events), events
    finally:
        subprocess.run(["umount", "-l", str(server.share)], check=False)
        server.close()


CASES = {case.__name__: case for case in (server_on_a_full_disk, queue_on_full_nodes, output_of_a_run, output_of_a_job)}


def in_a_namespace(gyre: Path, case: Callable[[Path, Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        own = "--map-root-user" if os.geteuid() else "--propagation=private"
        done = subprocess.run(
            [
                *("unshare", "--mount", own, "sh", "-c", MOUNT, "sh"),
                sys.executable,
                __file__,
                case.__name__,
                str(gyre),
                home,
            ],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_server_starts_on_a_full_disk_answers_questions_and_goes_on_when_there_is_room(gyre: Path) -> None:
    in_a_namespace(gyre, server_on_a_full_disk)


def test_queued_jobs_wait_for_room_on_the_disk_of_their_nodes(gyre: Path) -> None:
    in_a_namespace(gyre, queue_on_full_nodes)


def test_output_of_a_run_waits_for_room_and_is_whole(gyre: Path) -> None:
    in_a_namespace(gyre, output_of_a_run)


def test_what_is_missing_of_a_jobs_output_is_one_of_its_events(gyre: Path) -> None:
    in_a_namespace(gyre, output_of_a_job)


if __name__ == "__main__":
    CASES[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
