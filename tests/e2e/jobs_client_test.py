"""`gyre.jobs`: what scripts and notebooks do with a job server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gyre.errors import InvalidArgumentError, NotFoundError
from job_server import JobServer

from gyre.jobs import Client, Job, NoServerError, ServerError, find_connection


@pytest.fixture
def server(server: JobServer) -> JobServer:
    """With a cluster of two nodes."""
    server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
    return server


@pytest.fixture
def client(server: JobServer) -> Iterator[Client]:
    with Client(str(server.folder / "server.json")) as client:
        yield client


def test_a_job_is_submitted_followed_waited_for_and_its_files_are_copied(
    server: JobServer, client: Client, tmp_path: Path
) -> None:
    output = {"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external"}
    properties = server.custom(
        "echo hello é; mkdir -p $AZ_BATCHAI_OUTPUT_MODEL/a; echo 1 > $AZ_BATCHAI_OUTPUT_MODEL/a/m"
    )
    file = server.job_file({**properties, "outputDirectories": [output]}, "train.json")
    job = client.submit(file)
    assert job.name.startswith("train-")
    assert "".join(client.logs(job)) == "hello é\n"
    states: list[str] = []
    ended = client.wait(job, changed=lambda now: states.append(now.state))
    assert (ended.state, ended.exit_code, states[-1]) == ("succeeded", 0, "succeeded")
    assert [one.path for one in client.files(job, "MODEL", recursive=True)] == ["a", "a/m"]
    (copied,) = client.download(job, "MODEL", to=tmp_path / "got")
    assert copied.read_text() == "1\n"
    assert [one.name for one in client.jobs(state="succeeded")] == [job.name]


def test_code_goes_with_a_job_in_the_same_archive_as_the_verbs(server: JobServer, client: Client) -> None:
    """Two programs make it; one that differed in a byte would be uploaded and kept twice."""
    code = server.share / "code"
    deep = code / ("a" * 90) / ("b" * 90)
    deep.parent.mkdir(parents=True)
    deep.write_text("deep")
    (code / "lib").mkdir()
    (code / "lib" / "größe.py").write_text("NAME = 'net'\n")
    (code / "train.sh").write_text("#!/bin/sh\necho it runs; find . ! -type d\n")
    (code / "train.sh").chmod(0o755)
    (code / "link").symlink_to("lib/größe.py")
    for left_out in ("data/big", "x.tmp", "build/lib/y", "notes/a.txt", "notes/[b]"):
        (code / left_out).parent.mkdir(parents=True, exist_ok=True)
        (code / left_out).write_text("0" * 1000)
    (code / "notes" / "kept.txt").write_text("kept")
    rules = ["# comment", "data/", "*.tmp", "/build/**", "notes/*", "!notes/[^ab]*.txt", "**/\\[b]"]
    (code / ".gyreignore").write_text("\n".join(rules))
    server.ok("job", "submit", "--code", str(code), "-n", "first", "--", "./train.sh")
    second = client.submit(command=["./train.sh"], name="second", code=code)
    assert client.wait(second).exit_code == 0, client.why(second)
    text = "".join(client.logs(second))
    assert "it runs" in text
    assert "größe.py" in text
    assert "kept.txt" in text
    assert not any(name in text for name in ("data", "x.tmp", "build", "a.txt", "[b]"))
    assert len(list(server.folder.glob("code/*/*.tar"))) == 1
    third = client.wait(client.submit(command=["cp", "train.sh", "copy.sh"], code=code, output=["*.sh"]))
    assert [one.path for one in client.files(third, "work")] == ["copy.sh"]
    (code / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(InvalidArgumentError) as refused:
        client.submit(command=["true"], code=code)
    assert str(refused.value) in server.verb("job", "submit", "--code", str(code), "--", "true").stderr
    with pytest.raises(InvalidArgumentError, match="none is not a folder"):
        client.submit(command=["true"], code=code / "none")


def test_tokens_and_keys_are_not_uploaded_by_either_client(server: JobServer, client: Client, tmp_path: Path) -> None:
    """`gyre user create --to`, then `--code .`: the token went to every node."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").touch()
    server.ok("user", "create", "ada", "--to", str(code / "ada.json"))
    (code / "copy of ada").write_text((code / "ada.json").read_text())
    (code / "bert.token").write_text(server.ok("user", "create", "bert"))
    (code / "key").write_bytes(bytes(range(200, 232)))
    (code / "key").chmod(0o600)
    for name, what in (
        ("ada.json", "a token for a job server"),
        ("bert.token", "a token or a key of Gyre"),
        ("copy of ada", "a token for a job server"),
        ("key", "a key such as GYRE_KEY_FILE names"),
    ):
        with pytest.raises(InvalidArgumentError) as refused:
            client.submit(command=["true"], code=code)
        assert f"{name} holds {what}" in str(refused.value)
        assert str(refused.value) in server.verb("job", "submit", "--code", str(code), "--", "true").stderr
        (code / name).unlink()
    assert client.wait(client.submit(command=["true"], code=code)).exit_code == 0


def test_code_beyond_the_limits_is_refused_by_its_largest_part(client: Client, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for i in range(20_000):
        (tmp_path / "images" / str(i)).touch()
    (tmp_path / "images" / "0").write_bytes(bytes(2 << 20))
    (tmp_path / "train.py").touch()
    with pytest.raises(InvalidArgumentError, match=r"20000 files; .* The largest part so far is images \(2 MB\)"):
        client.submit(command=["true"], code=tmp_path)


def test_a_command_that_fails_says_why(client: Client) -> None:
    job = client.submit(command=["python3", "-c", "raise SystemExit(3)"], nodes=2, processes=2)
    ended = client.wait(job, timeout=120)
    assert ended.exit_code == 3
    assert ended.error.startswith("JobFailed: ")
    assert client.why(job).startswith("JobFailed: ")


def test_a_command_has_the_settings_that_it_is_given(client: Client) -> None:
    job = client.submit(command=["true"], processes=2, servers=1, restarts=3, retries=2)
    settings = job.resource["properties"]["gyreSettings"]
    assert settings == {"program": ["true"], "processesPerNode": 2, "servers": 1, "restarts": 3, "retries": 2}
    with pytest.raises(InvalidArgumentError, match="a job has them in gyreSettings"):
        client.submit({"nodeCount": 1}, servers=1)


def test_logs_go_on_across_a_restart_of_the_server(server: JobServer, client: Client) -> None:
    line = (
        "i=0; while [ $i -lt 40 ] || [ ! -e $AZ_BATCHAI_MOUNT_ROOT/external/go ]; do i=$((i+1)); echo line $i é; "
        "sleep 0.05; done; printf 'last é'"
    )
    job = client.submit(server.custom(line), name="count")
    text = ""
    for piece in client.logs(job):
        if not text:
            server.restart()
            (server.share / "go").touch()
        text += piece
    lines = text.split("\n")
    assert lines[-1] == "last é"
    assert lines[:-1] == [f"line {i} é" for i in range(1, len(lines))]
    assert client.wait(job).exit_code == 0


def test_the_servers_refusals_are_errors_with_its_words(server: JobServer, client: Client) -> None:
    client.submit(server.custom("true"), name="same")
    with pytest.raises(ServerError, match="none") as caught:
        client.job("none")
    assert (caught.value.code, caught.value.status) == ("JobNotFound", 404)
    with pytest.raises(ServerError, match="cannot be changed"):
        client.submit(server.custom("false"), name="same")
    with pytest.raises(InvalidArgumentError, match="a job or a command"):
        client.submit()
    waiting = client.submit(server.custom("true", nodes=5))
    assert "nodes" in client.why(waiting)
    assert client.stop(waiting).state == "failed"


def test_a_server_that_is_away_and_a_wrong_token_are_told_apart(server: JobServer) -> None:
    with Client(server.url, "0" * 64) as stranger, pytest.raises(ServerError) as caught:
        list(stranger.jobs())
    assert caught.value.status == 401
    server.end()
    away = Client(str(server.folder / "server.json"), patience=0)
    with away, pytest.raises(NoServerError, match="no job server answers"):
        list(away.jobs())
    server.start()


def test_it_works_over_tcp_with_a_token(job_server: JobServer) -> None:
    job_server.start("--listen", "127.0.0.1:0")
    token = job_server.ok("user", "create", "ada", "--administrator").strip()
    remote = job_server.places[1]
    with Client(remote, token) as client:
        assert list(client.jobs()) == []
    with Client(remote[:-64] + "0" * 64, token) as client, pytest.raises(InvalidArgumentError, match="is not the one"):
        list(client.jobs())


def test_where_the_server_is_follows_the_rules_of_the_verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GYRE_SERVER", "GYRE_TOKEN", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match="gyre server"):
        find_connection()
    file = tmp_path / "gyre" / "server.json"
    file.parent.mkdir()
    file.touch(mode=0o600)
    place = f"https://127.0.0.1:1#{'a' * 64}"
    file.write_text(json.dumps({"server": place, "user": "ada", "token": "secret"}))
    assert find_connection().token == "secret"
    assert "secret" not in repr(find_connection())
    with pytest.raises(NotFoundError, match="no token for"):
        find_connection(place.replace("0.1:1", "0.1:2"))
    for unproved in ("http://127.0.0.1:2", "https://10.0.0.1:2", "https://10.0.0.1:2#abc"):
        with pytest.raises(InvalidArgumentError, match="FINGERPRINT"):
            find_connection(unproved, "token")
    file.chmod(0o644)
    with pytest.raises(InvalidArgumentError, match="chmod 600"):
        find_connection()


def test_it_needs_the_standard_library_alone() -> None:
    program = "import sys, gyre.jobs; print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'numpy'}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_job_is_a_plain_value() -> None:
    running = Job("w", "e", "j", {"properties": {"executionState": "running", "executionInfo": {"exitCode": None}}})
    assert not running.has_ended
    assert running.exit_code is None
