"""`gyre run --cluster`: the command that runs here runs on a cluster of a job server, and ends as it does here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from job_server import JobServer
from terminal import terminal

LONGEST_WAIT_SECONDS = 60
TRAIN = """
import os, sys
rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
print("rank", rank, "of", size, "sees", open("data.txt").read(), *sys.argv[1:], flush=True)
sys.exit(int(os.environ.get("CODE", "0")) if rank == "3" else 0)
"""


@pytest.fixture
def pool(server: JobServer) -> JobServer:
    server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
    folder = server.tmp_path
    (folder / "train.py").write_text(TRAIN)
    (folder / "data.txt").write_text("42")
    (folder / ".gyreignore").write_text("*\n!train.py\n!data.txt\n!wheels\n!*.whl\n")
    return server


def test_ranks_of_two_nodes_have_the_folder_and_their_code_is_the_commands(pool: JobServer) -> None:
    words = ["run", "--cluster", "pool", "--nnodes", "2", "-n", "4", "--env", "CODE=7"]
    as_typed = pool.verb(*words, "--env", "PASS=pa$CODE $HOME", "--", "sh", "-c", 'echo "$PASS" "$@"', "sh", "${CODE}'")
    expected = [f"[{rank}] pa$CODE $HOME ${{CODE}}'" for rank in range(4)]
    assert sorted(as_typed.stdout.splitlines()) == expected, as_typed.stderr
    done = pool.verb(*words, "--", "python3", "train.py", "--epochs", "3")
    assert done.returncode == 7, done.stderr
    ranks = sorted(re.findall(r"rank (\d) of 4 sees 42 --epochs 3", done.stdout))
    assert ranks == ["0", "1", "2", "3"], done.stdout
    assert re.search(r"gyre run: submitted train-\S+ to cluster 'pool'\n", done.stderr)
    assert re.search(r"gyre run: job 'train-\S+' failed with exit code 7", done.stderr)
    torchrun = pool.verb("run", "--cluster", "pool", "--nnodes", "2", "--nproc-per-node", "2", "train.py")
    assert (torchrun.returncode, len(torchrun.stdout.splitlines())) == (0, 4), torchrun.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--metrics", "m"], "--metrics is for ranks that this command starts itself, not for --cluster"),
        (["-H", "localhost:2"], "--hosts is for ranks that this command starts itself, not for --cluster"),
        (["--nnodes", "2", "-n", "3"], "-n 3 cannot be divided evenly among the 2 nodes of --nnodes"),
        (["--nproc-per-node", "gpu"], "--nproc-per-node gpu: with --cluster, give a number of ranks for each node"),
        (["-n", "2", "--nproc-per-node", "2"], "give either -n or --nproc-per-node"),
        (["--requirements", "none.txt"], "none.txt"),
        (["--code", "none"], "none"),
        (["--job-name", "a/b"], "--job-name 'a/b': a name has only letters, digits, '-' and '_'"),
        (["-n", "1001"], "1001 ranks on each node are more than the 1000 that a job may have there"),
    ],
)
def test_what_cannot_be_done_on_a_cluster_is_said_before_anything_is_submitted(
    pool: JobServer, words: list[str], sentence: str
) -> None:
    refused = pool.verb("run", "--cluster", "pool", *words, "--", "train.py")
    assert refused.returncode in (2, 125), refused.stderr
    assert sentence in refused.stderr
    assert len(refused.stderr.splitlines()) <= 2, refused.stderr
    assert pool.json("job", "list") == []


def test_options_without_a_cluster_an_unknown_cluster_and_a_name_that_is_taken(pool: JobServer) -> None:
    alone = pool.verb("run", "--code", ".", "--", "true")
    assert (alone.returncode, alone.stderr.splitlines()[0]) == (2, "gyre run: --code is for --cluster"), alone.stderr
    nowhere = pool.verb("run", "--server", pool.url, "--", "true")
    assert nowhere.stderr.splitlines()[0] == "gyre run: --server is for --cluster", nowhere.stderr
    unnamed = pool.verb("run", "--cluster", "", "--", "true")
    assert unnamed.stderr.splitlines()[0] == "gyre run: --cluster: the cluster's name is empty", unnamed.stderr
    words = ["run", "--cluster", "pool", "--job-name", "once", "--", "true"]
    elsewhere = {"GYRE_SERVER": "unix:/nonexistent", "GYRE_WORKSPACE": "none"}
    done = pool.verb(*words[:-2], "--server", pool.url, "-w", "default", *words[-2:], env=elsewhere)
    assert done.returncode == 0, done.stderr
    again = pool.verb(*words)
    assert (again.returncode, again.stdout) == (2, "")
    assert "there is a job once already" in again.stderr
    unknown = pool.verb("run", "--cluster", "pol", "--", "true")
    assert unknown.returncode == 125  # 1 is the ranks' own.
    assert "did you mean 'pool'?" in unknown.stderr, unknown.stderr
    assert "uploads" not in unknown.stderr


def test_a_full_disk_under_stdout_is_waited_for_and_the_job_goes_on(pool: JobServer) -> None:
    words = [str(pool.gyre), "run", "--cluster", "pool", "--job-name", "nap", "--", "sh", "-c", "echo up; sleep 0.1"]
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(
            words, stdout=full, stderr=subprocess.PIPE, env=pool.environment, cwd=pool.tmp_path, bufsize=0
        )
    assert process.stderr is not None
    said = b""
    while b"it is tried again for up to 60 s: No space left on device\n" not in said:
        said += process.stderr.read(4096)
        assert process.poll() is None, said
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=LONGEST_WAIT_SECONDS)
    assert process.returncode == 128 + signal.SIGHUP
    assert "nap goes on; `gyre job logs -f nap` follows it again" in errors.decode()
    words = [str(pool.gyre), "job", "submit", "-f", "--name", "mute", "--", "echo", "up"]
    with Path("/dev/null").open("rb") as unwritable:
        mute = subprocess.run(
            words, stdout=unwritable, stderr=subprocess.PIPE, env=pool.environment, cwd=pool.tmp_path, check=False
        )
    assert mute.returncode == 125
    assert "the job may go on; `gyre job logs -f mute` follows it again" in mute.stderr.decode()


def test_a_program_that_the_node_lacks_is_said_to_be_missing_there(pool: JobServer) -> None:
    options = ["--cluster", "pool", "--code", str(pool.tmp_path)]
    lacking = pool.verb("run", *options, "--", "nosuch")
    assert lacking.returncode == 127
    assert "gyre run: that is the PATH of the job's node, /" in lacking.stderr
    (pool.tmp_path / "bin").mkdir()
    program = pool.share / "nosuch"
    program.write_text("#!/bin/sh\necho found; exit 3\n")
    program.chmod(0o755)
    found = pool.verb("run", *options, "--env", f"PATH={pool.share}:/usr/bin:/bin", "--", "nosuch")
    assert (found.returncode, found.stdout) == (3, "[0] found\n"), found.stderr
    assert "log-dir" not in found.stderr  # --cluster refuses it.


def launcher_of(word: str) -> int:
    """The process that ends with the job's node: `gyre launch`, above `gyre run` and the rank with this word."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
            if words[0] != "sh" or word not in words:
                continue
            run = (process / "stat").read_text().rpartition(")")[2].split()[1]
            return int(Path(f"/proc/{run}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    raise AssertionError("no such process")


def test_a_second_attempt_is_announced_before_its_output(pool: JobServer) -> None:
    first = pool.share / "first"
    line = f'echo up; test -e "{first}" && exit; touch "{first}"; sleep 300'
    words = ["job", "submit", "-f", "--name", "twice", "--retries", "1", "--", "sh", "-c", line]
    follower = pool.start_verb(*words)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"[0] up\n"
    os.kill(launcher_of(line), signal.SIGKILL)
    output, errors = follower.communicate(timeout=LONGEST_WAIT_SECONDS)
    assert (follower.returncode, output) == (0, b"[0] up\n"), errors.decode()  # The second.
    again = "gyre job submit: twice begins again, and its output with it (attempt 2): "
    assert [line for line in errors.decode().splitlines() if line.startswith(again)], errors.decode()


def test_a_server_that_is_away_is_said_at_once_and_not_after_the_patience(pool: JobServer) -> None:
    pool.ok("job", "submit", "--name", "nap", "--", "sleep", "300")
    waiting = pool.start_verb("job", "wait", "nap")
    assert waiting.stderr is not None
    while b"job running" not in waiting.stderr.readline():
        assert waiting.poll() is None
    pool.end()
    for process in (waiting, pool.start_verb("run", "--cluster", "pool", "--", "true")):
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert f"no job server answers at {pool.url} (" in line
        assert line.endswith("; asks again for up to 300 s, Ctrl-C ends the waiting\n"), line
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LONGEST_WAIT_SECONDS)
        assert process.returncode == -signal.SIGINT
    pool.start()


@pytest.fixture
def sleeping(pool: JobServer) -> list[str]:
    options = ["--cluster", "pool", "--job-name", "nap", "--code", str(pool.tmp_path)]
    return [str(pool.gyre), "run", *options, "--", "sh", "-c", "echo up; exec sleep 300"]


def state(server: JobServer) -> str:
    return str(server.json("job", "show", "nap")["properties"]["executionState"])


def wait_until_failed(server: JobServer) -> None:
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while state(server) != "failed":
        assert time.monotonic() < deadline, state(server)
        time.sleep(0.05)


def test_sigterm_stops_the_job_and_sighup_leaves_it(pool: JobServer, sleeping: list[str]) -> None:
    for with_signal, says in ((signal.SIGHUP, "nap goes on"), (signal.SIGTERM, "stops nap")):
        process = pool.start_verb(*sleeping[1:])
        assert process.stdout is not None
        assert process.stdout.readline().endswith(b"up\n")
        process.send_signal(with_signal)
        _, errors = process.communicate(timeout=LONGEST_WAIT_SECONDS)
        assert process.returncode == 128 + with_signal, errors
        assert says in errors.decode()
        assert state(pool) == ("running" if with_signal == signal.SIGHUP else "failed")
        pool.ok("job", "stop", "nap")
        wait_until_failed(pool)
        pool.ok("job", "delete", "-y", "nap")


def test_control_c_asks_whether_to_stop_the_job_or_to_leave_it(pool: JobServer, sleeping: list[str]) -> None:
    with terminal(sleeping, pool.environment, columns=120) as view:
        view.wait_for(lambda lines: any(line.endswith("up") for line in lines))
        view.press_control_c()
        view.wait_for(lambda lines: any("or go on (Enter)?" in line for line in lines))
        view.type("\n")
        view.wait_for(lambda lines: any("nap  running" in line for line in lines[-2:]))
        view.press_control_c()
        view.wait_for(lambda lines: sum("or go on (Enter)?" in line for line in lines) == 2)
        view.type("l\n")
        assert view.wait_for_end() == 128 + signal.SIGINT
        assert any("`gyre job logs -f nap` follows it again" in line for line in view.lines())
        assert view.modes_are_unchanged()
    assert state(pool) == "running"
    pool.ok("job", "stop", "nap")


def test_requirements_of_this_machine_alone_are_refused(pool: JobServer) -> None:
    """That others are installed is tested in environments_test.py."""
    (pool.tmp_path / "requirements.txt").write_text("tinypkg\n-e .\n")
    for verb in (["run", "--cluster", "pool"], ["job", "submit", "-f"]):
        local = pool.verb(*verb, "--requirements", "requirements.txt", "--", "python3", "train.py")
        assert (local.returncode, local.stdout) == (2, "")
        assert "requirements.txt: line 2, '-e .', names files that nodes do not have" in local.stderr
