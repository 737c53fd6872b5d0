"""The doors of the job service: who may do what, as docs/guide/security.md says it. Each test is an attack, and the
message that stops it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from job_server import JobServer

pytestmark = pytest.mark.needs_root  # To have accounts.

ACCOUNTS = {"max": 20_000, "ada": 20_001, "robert": 20_002}


@pytest.fixture(params=["", "max"], ids=["run_by_root", "run_by_max"])
def server(request: pytest.FixtureRequest, gyre: Path, tmp_path: Path, evidence: list[Path]) -> Iterator[JobServer]:
    """A server in whose workspace `hers`, which has a cluster, ada may submit jobs."""
    started = JobServer(gyre, tmp_path, ACCOUNTS, request.param)
    evidence.append(started.log)
    started.start("--listen", "127.0.0.1:0")
    started.ok("workspace", "create", "hers")
    started.ok("user", "create", "ada", *(["--trusted"] if started.run_as else []))
    started.ok("workspace", "add-owner", "hers", "ada")
    started.ok("cluster", "create", "pool", "-w", "hers", "-t", "1", "--mount", f"external={started.share}")
    yield started
    started.close()


HERS = {"GYRE_WORKSPACE": "hers"}


def refusal(server: JobServer, *words: str, account: str = "ada", env: dict[str, str] | None = None) -> str:
    done = server.verb(*words, account=account, env=HERS | (env or {}))
    # 125: of verbs whose exit code is a job's.
    assert done.returncode in (1, 2, 125), (words, done.stdout, done.stderr)
    return done.stderr


def test_an_owner_makes_no_cluster_and_so_no_setup_task_mount_or_driver_option(server: JobServer) -> None:
    mark = server.share / "mark"
    attacks = [
        ["create", "mine", "-t", "1", "--setup-task", f"touch {mark}", "--setup-task-output", str(server.share)],
        ["create", "mine", "-t", "1", "--mount", "external=/root"],
        ["create", "mine", "-t", "1", "--driver", "slurm", "--driver-option", f"shared_folder={server.share}"],
        ["resize", "pool", "-t", "0", "--when-busy", "terminate"],
        ["delete", "pool", "-y"],
    ]
    for words in attacks:
        assert "only administrators make, change and delete clusters" in refusal(server, "cluster", *words)
    assert not mark.exists()
    done = server.verb("job", "submit", "-c", "pool", "-f", "--", "id", "-un", account="ada", env=HERS)
    assert done.stdout == f"[0] {'max' if server.run_as else 'ada'}\n", done.stderr


def test_an_account_without_a_user_and_one_that_is_not_trusted(server: JobServer) -> None:
    stranger = refusal(server, "job", "list", account="robert")
    assert "account 'robert' is not that of a user of this server" in stranger
    assert "gyre user create robert" in stranger
    server.ok("user", "create", "robert")
    assert "no workspace 'hers' that you may use" in refusal(server, "job", "list", account="robert")
    server.ok("workspace", "add-owner", "hers", "robert")
    assert server.verb("job", "list", account="robert", env=HERS).returncode == 0
    submit = ("job", "submit", "-f", "--", "id", "-un")
    if not server.run_as:
        assert "nobody has to be trusted" in server.verb("user", "change", "robert", "--trusted").stderr
        assert server.verb(*submit, account="robert", env=HERS).stdout == "[0] robert\n"
        return
    others = [("experiment", "create", "x"), ("workspace", "remove-owner", "hers", "ada")]
    for words in (submit, *others):
        said = refusal(server, *words, account="robert")
        assert "user 'robert' may only look: all jobs of this server run as account 'max'" in said, words
        assert "can read and change what the jobs of all others read and write" in said
        assert "gyre user change robert --trusted" in said
    server.ok("user", "change", "robert", "--trusted")
    assert server.verb(*submit, account="robert", env=HERS).stdout == "[0] max\n"


def test_what_the_server_keeps_is_read_by_nobody_else(server: JobServer) -> None:
    """The catalog, the keys, the code, and the files of users."""
    name = server.verb("job", "submit", "--", "true", account="ada", env=HERS).stdout.strip()
    assert server.verb("job", "wait", name, env=HERS).returncode == 0
    private = [path for path in server.folder.rglob("*") if path.is_file() and "nodes" not in path.parts]
    names = {path.name for path in private}
    assert {"catalog.db", "agents.key", "server.json"} <= names
    for path in private:
        done = subprocess.run(
            ["cat", str(path)], capture_output=True, text=True, user=20_002, group=20_002, extra_groups=[], check=False
        )
        assert "Permission denied" in done.stderr, path


@contextmanager
def squatter(path: Path) -> Iterator[list[bytes]]:
    """robert listens at a place that a server had, and keeps what comes."""
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        number = ACCOUNTS["robert"]
        os.setegid(number)
        os.seteuid(number)  # SO_PEERCRED is who has called listen().
        try:
            listener.bind(str(path))
            listener.listen()
        finally:
            os.seteuid(0)
            os.setegid(0)
        path.chmod(0o666)

        def listen() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.settimeout(1)
                with suppress(OSError):
                    heard.append(connection.recv(65536))
                connection.close()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield heard
        listener.shutdown(socket.SHUT_RDWR)


def test_a_squatter_of_the_servers_place_collects_no_token(server: JobServer) -> None:
    """A folder where everybody may make a socket, and a file whose server was there."""
    token = server.ok("user", "renew-token", "ada").strip()
    place = Path(server.folder.parent / "open")
    place.mkdir()
    place.chmod(0o1777)
    with squatter(place / "gyre.sock") as heard:
        for variables in ({"GYRE_TOKEN": token}, {}):
            said = refusal(server, "job", "list", "--server", f"unix:{place}/gyre.sock", env=variables)
            assert not variables or "belongs to account" in said, said
        assert [words for words in heard if b"Authorization" in words or token.encode() in words] == []
    script = (
        "import sys; from gyre.jobs import Client\n"
        "try: list(Client(sys.argv[1], sys.argv[2]).jobs())\n"
        "except Exception as failure: print(failure)"
    )
    with squatter(place / "second.sock") as heard:
        done = subprocess.run(
            ["/usr/bin/python3", "-c", script, f"unix:{place}/second.sock", token],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(Path(__file__).parents[2] / "python")},
            check=False,
        )
        assert "it was not sent" in done.stdout, done.stderr
        assert heard in ([], [b""])


def test_a_token_opens_the_tcp_door_and_an_account_does_not(server: JobServer) -> None:
    remote = server.places[1]
    assert "there is no token for" in refusal(server, "job", "list", "--server", remote)
    wrong = refusal(server, "job", "list", "--server", remote, env={"GYRE_TOKEN": "0" * 64})
    assert "the token is not valid" in wrong
    token = server.ok("user", "renew-token", "ada").strip()
    done = server.verb("job", "list", "--server", remote, account="ada", env=HERS | {"GYRE_TOKEN": token})
    assert done.returncode == 0, done.stderr
    assert json.loads(server.ok("user", "list", "-o", "json"))
