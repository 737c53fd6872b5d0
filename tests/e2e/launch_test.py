"""`gyre launch`: ranks that outlive the process that started them, and that a reader finds again by their socket."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from running_job import wait_until

LONGEST_SECONDS = 60.0
# Says its number, and goes on when the file `go` appears.
PATIENT = "echo before $GYRE_RANK; until [ -e go ]; do sleep 0.01; done; echo after $GYRE_RANK"
DEAF = "trap '' TERM INT; echo deaf; sleep 1000 & while :; do wait; sleep 1000; done"


class Launched:
    """A running `gyre launch`, started by a process that can be killed without it."""

    def __init__(self, gyre: Path, folder: Path, specification: dict[str, Any]) -> None:
        self.socket = folder / "launch.sock"
        self.folder = folder
        self.parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(gyre), str(self.socket), json.dumps(specification)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.parent.stdout is not None
        line = self.parent.stdout.readline()
        assert line, self.parent.communicate()[1].decode()
        self.announced = json.loads(line)
        self.pid = int(self.announced["process"])

    def kill_parent(self) -> None:
        self.parent.kill()
        self.parent.communicate()

    def connect(self) -> Reader:
        return Reader(self.socket)

    def end(self) -> None:
        self.kill_parent()
        if is_alive(self.pid):
            os.kill(self.pid, signal.SIGKILL)


# Starts the program given, passes on its first line, and waits to be killed.
PARENT = """
import subprocess, sys
gyre, socket, specification = sys.argv[1:]
launch = subprocess.Popen([gyre, "launch", "--socket", socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
launch.stdin.write(specification.encode())
launch.stdin.close()
sys.stdout.buffer.write(launch.stdout.read())
sys.stdout.close()
sys.exit(launch.wait())
"""


class Reader:
    """One connection to the socket."""

    def __init__(self, path: Path) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(LONGEST_SECONDS)
        self.connection.connect(str(path))
        self.lines = self.connection.makefile("rb")

    def ask(self, **request: Any) -> None:
        self.connection.sendall(json.dumps(request).encode() + b"\n")

    def next(self) -> dict[str, Any]:
        line = self.lines.readline()
        assert line, "the other side has closed the connection"
        record: dict[str, Any] = json.loads(line)
        return record

    def until(self, what: str) -> list[dict[str, Any]]:
        records = []
        while not records or records[-1].get("type") != what:
            records.append(self.next())
        return records

    def close(self) -> None:
        self.lines.close()
        self.connection.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def has_ended(pid: int) -> bool:
    return not is_alive(pid)


def output_of(records: list[dict[str, Any]], rank: int, stream: str = "stdout") -> bytes:
    pieces = [each for each in records if each.get("rank") == rank and each.get("stream") == stream]
    return b"".join(base64.b64decode(each["base64"]) if "base64" in each else each["text"].encode() for each in pieces)


@pytest.fixture
def launched(gyre: Path, tmp_path: Path) -> Iterator[Any]:
    running = []

    def start(specification: dict[str, Any]) -> Launched:
        running.append(Launched(gyre, tmp_path, specification))
        return running[-1]

    yield start
    for each in running:
        each.end()


def shells(script: str, count: int = 2) -> list[dict[str, Any]]:
    return [{"command": ["sh", "-c", script], "count": count}]


def test_a_reader_that_returns_continues_where_it_was_and_the_parent_may_die(launched: Any, tmp_path: Path) -> None:
    other = {"command": ["printf", r"\377\n"], "role": "other", "index": 0, "stderr": "/dev/null"}
    ranks = [*shells(PATIENT), other]
    job = launched({"ranks": ranks, "linger_seconds": 600})
    assert job.announced["socket"] == str(job.socket)
    assert stat.S_IMODE(job.socket.stat().st_mode) == 0o600
    first = job.connect()
    first.ask(request="follow")
    seen: list[dict[str, Any]] = []
    while b"before" not in output_of(seen, 0) or b"before" not in output_of(seen, 1):
        seen.append(first.next())
    first.close()
    job.kill_parent()
    (tmp_path / "go").touch()
    # Nobody is there while the ranks end; it waits for a reader all the same.
    second = job.connect()
    second.ask(request="follow", after=seen[-1]["sequence"])
    seen += second.until("finished")
    assert [each["sequence"] for each in seen] == list(range(1, len(seen) + 1))
    for rank in (0, 1):
        assert output_of(seen, rank) == b"before %d\nafter %d\n" % (rank, rank)
    assert output_of(seen, 2) == b"\xff\n"
    ends = {each["rank"]: each for each in seen if each["type"] == "ended"}
    assert {rank: each["exit_code"] for rank, each in ends.items()} == {0: 0, 1: 0, 2: 0}
    assert ends[2]["role"] == "other"
    assert seen[-1]["exit_code"] == 0
    second.ask(request="release")
    assert second.next() == {"released": True}
    wait_until("it has ended", lambda: not is_alive(job.pid))
    assert not job.socket.exists()


def test_kill_9_of_it_ends_the_ranks_and_its_socket_is_free_again(launched: Any) -> None:
    job = launched({"ranks": shells(f"setsid sleep 1000 & {DEAF}")})
    reader = job.connect()
    reader.ask(request="follow")
    seen: list[dict[str, Any]] = []
    while output_of(seen, 0) + output_of(seen, 1) != b"deaf\ndeaf\n":
        seen.append(reader.next())
    ranks = [each["process"] for each in seen if each["type"] == "started"]
    os.kill(job.pid, signal.SIGKILL)
    for rank in ranks:
        wait_until(f"rank process {rank} is gone", partial(has_ended, rank))
    again = launched({"ranks": shells("exit 0")})
    follower = again.connect()
    follower.ask(request="follow")
    assert follower.until("finished")[-1]["exit_code"] == 0


def test_a_failure_ends_the_others_and_a_stop_ends_all(launched: Any, gyre: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    ranks = [
        {"command": ["sh", "-c", "echo kept; exec sleep 1000"], "stdout": str(log)},
        {"command": ["sh", "-c", "until [ -s log ]; do sleep 0.01; done; echo oops >&2; exit 7"]},
    ]
    job = launched({"ranks": ranks, "linger_seconds": 0})
    reader = job.connect()
    reader.ask(request="follow")
    seen = reader.until("finished")
    assert seen[-1]["exit_code"] == 7
    assert seen[-1]["first_failed_rank"] == 1
    assert seen[-1]["ended_because"] == [0]
    assert output_of(seen, 1, "stderr") == b"oops\n"
    assert log.read_text() == "kept\n"
    # A client that only follows does not keep it alive.
    assert job.parent.wait(LONGEST_SECONDS) == 7

    job = launched({"ranks": shells(DEAF), "grace_seconds": 600})
    reader = job.connect()
    reader.ask(request="follow")
    while output_of(seen := [*seen, reader.next()], 1).count(b"deaf") < 1:
        pass
    refused = subprocess.run(
        [gyre, "launch", "--socket", job.socket],
        input=b'{"ranks": [{"command": ["true"]}]}',
        capture_output=True,
        check=False,
    )
    assert b"another process already listens at" in refused.stderr
    reader.ask(request="stop", signal=2, grace_seconds=0)
    ended = [each for each in reader.until("finished") if each.get("type") in ("ended", "finished")]
    assert ended[-1]["exit_code"] == 128 + signal.SIGINT
    assert {each["signal"] for each in ended[:-1]} == {"SIGKILL"}
    # It waits for a reader's release, or for somebody who wants it gone.
    assert is_alive(job.pid)
    os.kill(job.pid, signal.SIGHUP)
    os.kill(job.pid, signal.SIGTERM)
    assert job.parent.wait(LONGEST_SECONDS) == 128 + signal.SIGINT
    assert not job.socket.exists()


def test_requests_that_make_no_sense_harm_nobody(launched: Any) -> None:
    job = launched({"ranks": shells(PATIENT), "keep_bytes": 65536})
    for line, words in (
        (b"{", "a request is a line like"),
        (b"[]", "a request is a line like"),
        (b'{"request": "nonsense"}', "there is no request 'nonsense'"),
        (b'{"request": "follow", "after": -1}', "after must be"),
        (b'{"request": "follow", "after": 1e300}', "after must be"),
        (b'{"request": "stop", "signal": 65}', "signal must be"),
        (b'{"request": "stop", "grace_seconds": "x"}', "grace_seconds must be"),
        (b'{"request": "hear"}', "hear needs lines"),
    ):
        reader = job.connect()
        reader.connection.sendall(line + b"\n")
        assert words in reader.next()["error"], line
        reader.close()
    endless = job.connect()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        endless.connection.sendall(b"x" * (64 << 20))  # A line without an end.
    status = job.connect()
    status.ask(request="status")
    assert status.next()["status"]["finished"] is False
    (job.folder / "go").touch()
    status.ask(request="follow")
    assert status.until("finished")[-1]["exit_code"] == 0


def test_the_oldest_records_go_when_nobody_reads_them_and_a_reader_is_told(launched: Any, tmp_path: Path) -> None:
    lines = 100_000
    script = f"seq 1 {lines}; until [ -e go ]; do sleep 0.01; done"
    # More than one record, which has at most what a pipe holds: the last one of output would go when the ends come.
    job = launched({"ranks": shells(script, 1), "keep_bytes": 262144})
    late = job.connect()

    def has_dropped_some() -> bool:
        late.ask(request="status")
        return bool(late.next()["status"]["first_sequence"] > 2)

    wait_until("more was written than is kept", has_dropped_some)
    (tmp_path / "go").touch()
    late.ask(request="follow", after=1)
    first = late.next()
    assert first["dropped"] > 0
    assert first["after"] == 1
    records = late.until("finished")
    assert records[0]["sequence"] == first["after"] + first["dropped"] + 1
    assert output_of(records, 0).endswith(b"\n%d\n" % lines)


@pytest.mark.parametrize(
    ("specification", "code", "words"),
    [
        ("{", 2, "the specification is not valid JSON"),
        ('{"ranks": [{"command": ["no-such-program"]}], "socket": "SOCKET"}', 127, "command not found"),
        ('{"ranks": [{"command": ["true"]}]}', 2, "give a path for the socket"),
        ('{"ranks": [{"command": ["true"]}], "socket": "relative"}', 2, "must be an absolute path"),
        ('{"ranks": [{"command": ["true"]}], "socket": "/etc/hostname"}', 2, "exists and is not a socket"),
        (
            '{"ranks": [{"command": ["true"], "inherited": {"A": 999}}], "socket": "SOCKET"}',
            2,
            "cannot inherit descriptor 999",
        ),
    ],
)
def test_what_cannot_start_is_one_line(gyre: Path, tmp_path: Path, specification: str, code: int, words: str) -> None:
    path = tmp_path / "launch.sock"
    specification = specification.replace("SOCKET", str(path))
    done = subprocess.run(
        [gyre, "launch"], input=specification, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code
    assert words in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) <= 2  # The second one names --help.
    assert not path.exists()
