"""What people get wrong first with `gyre server` and the verbs of its clients: each is one sentence with its remedy."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from job_server import JobServer


@pytest.fixture
def pool(server: JobServer) -> JobServer:
    """A server with one cluster of two nodes."""
    server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}", "--containers-on-host")
    return server


def test_first_mistakes_with_a_servers_options_are_named_with_their_remedy(gyre: Path, tmp_path: Path) -> None:
    """They ended as "filesystem error" with exit code 1, or in words of our sources."""
    file = tmp_path / "file"
    file.write_text("somebody else's")
    folder = ("--folder", str(tmp_path / "state"))
    for words, said in (
        ((*folder, "--listen", "0.0.0.0"), "--listen 0.0.0.0: the port is missing; write 0.0.0.0:7710"),
        ((*folder, "--listen", "localhost:99999"), "--listen localhost:99999 is not a place to listen at"),
        ((*folder, "--listen", "unix:"), "--listen unix: is not a place to listen at"),
        (("--folder", str(file)), f"--folder {file}: cannot make the folder"),
        (("--folder", str(file / "below")), f"--folder {file}/below: cannot make the folder: Not a directory"),
        ((*folder, "--keep-free", "much"), "--keep-free: 'much' is not a number of bytes, as in 500MB or 20GB"),
        ((*folder, "--limit", "code=much"), "--limit code: 'much' is not a number of bytes from 1 to 1024TB"),
    ):
        command = [str(gyre), "server", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2, (words, done.stderr)
        assert said in done.stderr
        assert len(done.stderr.splitlines()) <= 2, done.stderr  # The second names --help.
        assert not (tmp_path / "state").exists()


def test_a_new_users_file_replaces_nothing_but_such_a_file(pool: JobServer) -> None:
    """`gyre user create --to FILE` replaced whatever was there; root could lose /etc/passwd."""
    file = pool.tmp_path / "notes.txt"
    file.write_text("somebody else's")
    done = pool.verb("user", "create", "mistaken", "--to", str(file))
    assert done.returncode == 2
    assert f"--to {file}: this is there already, and is no file that names a server" in done.stderr
    assert file.read_text() == "somebody else's"
    assert "mistaken" not in pool.ok("user", "list")
    own = pool.tmp_path / "own.json"
    pool.ok("user", "create", "careful", "--to", str(own))
    before = own.read_text()
    pool.ok("user", "renew-token", "careful", "--to", str(own))
    assert own.read_text() != before
    pool.ok("user", "delete", "careful", "-y")


def test_a_files_experiment_name_was_free_text_and_becomes_a_name(pool: JobServer) -> None:
    """Of damienpontifex/BatchAIMnist; it was refused."""
    file = pool.tmp_path / "job.json"
    file.write_text(
        '{"properties": {"experimentName": "MNIST Train", "nodeCount": 1, "stdOutErrPathPrefix": '
        '"$AZ_BATCHAI_MOUNT_ROOT/external", "customToolkitSettings": {"commandLine": "true"}}}'
    )
    done = pool.verb("job", "submit", str(file), "-n", "train")
    assert done.returncode == 0, done.stderr
    assert "the file's experimentName 'MNIST Train' becomes experiment 'MNIST-Train'" in done.stderr
    pool.ok("job", "wait", "MNIST-Train/train")


def test_a_new_user_whom_this_machine_keeps_from_the_server_is_named(pool: JobServer) -> None:
    """They were refused at their first submission, or could not reach the socket; nobody had said so."""
    if os.geteuid() == 0:
        said = pool.verb("user", "create", "no-such-account").stderr
        assert "this machine has no account 'no-such-account', so no-such-account cannot submit jobs" in said
        pool.ok("user", "delete", "no-such-account", "-y")
    assert pool.verb("user", "create", "nobody").stderr == ""
    pool.ok("user", "delete", "nobody", "-y")
    folder = Path(pool.url.removeprefix("unix:")).parent
    mode = folder.stat().st_mode & 0o7777
    folder.chmod(0o700)
    try:
        said = pool.verb("user", "create", "nobody").stderr
    finally:
        folder.chmod(mode)
        pool.ok("user", "delete", "nobody", "-y")
    assert f"user 'nobody' cannot enter the folder {folder}, on the way to {folder}/gyre.sock" in said
    assert "start the server with --listen unix:/PATH where nobody can go, or --listen HOST:PORT" in said


def test_more_nodes_than_a_cluster_may_have_are_named_at_submission(pool: JobServer) -> None:
    done = pool.verb("job", "submit", "-c", "pool", "--name", "wide", "--nodes", "5", "--", "true")
    assert done.returncode == 0
    assert "gyre job submit: wide waits: needs 5 nodes; cluster 'pool' is limited to 2" in done.stderr
    assert pool.ok("job", "why", "wide").count("would start at once") == 1
    pool.ok("job", "delete", "wide", "-y")


def test_numbers_of_nodes_beyond_the_limit_are_refused_as_options(pool: JobServer) -> None:
    for words, said in (
        (("create", "huge", "-t", "2147483648"), "--target: '2147483648' is not a whole number from 0 to 10000"),
        (("resize", "pool", "-t", "99999999999999999999"), "is not a whole number from 0 to 10000"),
        (("create", "huge", "--min", "5", "--max", "2"), "--min 5 is above --max 2"),
    ):
        done = pool.verb("cluster", *words)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr


@pytest.mark.parametrize("group", ["cluster", "workspace", "experiment", "user", "job"])
def test_the_help_of_a_verb_has_examples_of_that_verb(gyre: Path, group: str) -> None:
    """Verbs showed the examples of their group, most of them of other verbs."""

    def help_of(*words: str) -> str:
        done = subprocess.run([gyre, *words, "--help"], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    verbs = re.findall(r"^  ([a-z-]+) ", help_of(group).partition("Subcommands:")[2], re.MULTILINE)
    verbs = [verb for verb in verbs if verb != "gyre"]
    assert len(verbs) > 3
    for verb in verbs:
        examples = help_of(group, verb).partition("Examples:")[2]
        assert not examples or f"gyre {group} {verb}" in examples, (verb, examples)
