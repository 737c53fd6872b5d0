"""`gyre job shell`: a command, or a terminal, in a job that runs, through the service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from job_server import JobServer
from job_shells import LONGEST_SECONDS, shell
from running_job import wait_until
from terminal import Terminal, terminal

OURS = 125


@pytest.fixture
def job(server: JobServer) -> JobServer:
    """A server with a running job `train`, with a variable, a secret and two nodes."""
    server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
    line = 'touch "$AZ_BATCHAI_MOUNT_ROOT/external/runs-$AZ_BATCH_NODE_ID"; exec sleep 1000'
    words = ("job", "submit", "-n", "train", "--nodes", "2", "--env", "COLOUR=blue", "--secret", "HIDDEN")
    server.ok(*words, "--", "bash", "-c", line, env={"HIDDEN": "hush-hush"})
    wait_until("the job runs", lambda: len(list(server.share.glob("runs-*"))) == 2)
    return server


@contextmanager
def begun(server: JobServer, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that goes on: its stdin and stdout are pipes."""
    command = [str(server.gyre), "job", "shell", *words]
    pipe = subprocess.PIPE
    verb = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, env=server.environment)
    try:
        yield verb
    finally:
        verb.kill()
        verb.wait()


def is_gone(pid: int) -> bool:
    """A zombie has ended too; whoever has adopted it has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_command_runs_as_one_of_the_job_with_its_output_and_its_exit_code(job: JobServer) -> None:
    told = 'echo "$COLOUR $HIDDEN $AZ_BATCHAI_JOB_NAME $PWD"; echo bad >&2; cat; exit 7'
    done = shell(job, "train", "--", "bash", "-c", told, data=b"typed\n")
    folder = done.stdout.decode().split("\n")[0].rpartition(" ")[2]
    assert done.stdout.decode() == f"blue hush-hush train {folder}\ntyped\n"
    assert done.stderr == b"bad\n"
    assert done.returncode == 7
    assert "train" in folder
    for words, code in (("kill -TERM $$", 128 + signal.SIGTERM), ("exit 0", 0)):
        assert shell(job, "train", "--", "sh", "-c", words).returncode == code
    missing = shell(job, "train", "--", "no-such-program")
    assert (missing.returncode, missing.stdout) == (127, b"")
    assert b"gyre job shell: " in missing.stderr
    assert b"no-such-program" in missing.stderr
    directory = shell(job, "train", "--", "/tmp")
    assert directory.returncode == 126
    plain = shell(job, "train", data=b"echo $COLOUR; exit 3\n")  # A shell that reads what it is given.
    assert (plain.stdout, plain.returncode) == (b"blue\n", 3)
    audit = [json.loads(line) for line in (job.folder / "audit.log").read_text().splitlines()]
    ours = [entry for entry in audit if entry["what"].endswith("/jobs/train/shell")]
    assert [entry["status"] for entry in ours] == [101] * len(ours)
    assert ours[0]["command"] == ["bash", "-c", told]
    assert ours[-1]["command"] == ["(a shell)"]
    shell(job, "train", "--", "echo", "is hush-hush it")
    text = (job.folder / "audit.log").read_text()
    assert '"is *** it"' in text
    assert "hush-hush" not in text


def test_every_byte_passes_both_ways_and_a_full_output_does_not_hold_up_the_other(job: JobServer) -> None:
    data = os.urandom(10_000_000)
    done = shell(job, "train", "--", "cat", data=data)
    assert done.stdout == data
    with begun(job, "train", "--", "bash", "-c", "head -c 5000000 /dev/zero & sleep 0.01; echo now >&2; wait") as verb:
        assert verb.stderr is not None
        assert verb.stdout is not None
        # Nobody reads stdout yet, which has long been full.
        assert verb.stderr.readline() == b"now\n"
        assert len(verb.stdout.read()) == 5_000_000
        assert verb.wait(LONGEST_SECONDS) == 0


def test_rank_and_node_choose_where_it_runs(job: JobServer) -> None:
    where = ("--", "sh", "-c", 'echo "$AZ_BATCH_NODE_ID"')
    nodes = [shell(job, "train", rank, *where).stdout.decode().strip() for rank in ("0", "1")]
    assert len(set(nodes)) == 2
    assert shell(job, "train", *where).stdout.decode().strip() == nodes[0]
    assert shell(job, "train", nodes[1], *where).stdout.decode().strip() == nodes[1]
    no_rank = shell(job, "train", "2", *where)
    assert (no_rank.returncode, no_rank.stdout) == (OURS, b"")
    assert no_rank.stderr.decode() == "gyre job shell: the job has no rank 2; there are 0 to 1\n"
    no_node = shell(job, "train", "else", *where)
    assert no_node.returncode == OURS
    assert f"it runs on {nodes[0]}, {nodes[1]}" in no_node.stderr.decode()
    no_job = shell(job, "nothing", *where)
    assert no_job.returncode == OURS
    assert no_job.stderr.decode().count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "JOB is required"),
        (("train", "ls"), "the job does not run on a node 'ls'"),
        (("train", "ls", "-l"), "unknown option -l"),
        (("train", "0", "ls"), "unexpected argument 'ls'"),
        (("train", "--bogus", "--", "true"), "unknown option --bogus"),
        (("train", "-t", "-T", "--", "true"), "--terminal excludes --no-terminal"),
        (("train", "--escape", "ab", "--", "true"), "--escape: 'ab' is neither one character nor none"),
        # An unset variable of a script must not choose rank 0.
        (("train", "", "--", "true"), "RANK-or-NODE is empty"),
        (("", "--", "true"), "'' names no job"),
        (("a/b/c", "--", "true"), "'a/b/c' names no job"),
        (("train/", "--", "true"), "'train/' names no job"),
    ],
)
def test_a_mistake_in_the_command_line_is_not_the_commands_exit_code(
    job: JobServer, words: tuple[str, ...], said: str
) -> None:
    """Programs end with 2 too. Where `--` was forgotten, it is named."""
    done = shell(job, *words)
    assert (done.returncode, done.stdout) == (OURS, b"")
    errors = done.stderr.decode()
    assert errors.startswith(f"gyre job shell: {said}"), errors
    assert ("a command stands behind `--`" in errors) == ("--" not in words)


def test_a_stderr_that_takes_nothing_more_changes_no_exit_code(job: JobServer) -> None:
    """A full disk once made an abort of each mistake, of every verb."""
    for words, code in (
        (("shell", "nothing", "--", "true"), OURS),
        (("shell", "train", "--bogus"), OURS),
        (("shell", "train", "--", "sh", "-c", "echo bad >&2; sleep 100"), OURS),
        (("shell", "train", "--", "sh", "-c", "exit 3"), 3),
        (("show", "nothing"), 1),
        (("show", "--bogus"), 2),
    ):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [str(job.gyre), "job", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=full,
                env=job.environment,
                timeout=LONGEST_SECONDS,
                check=False,
            )
        assert done.returncode == code, words


def test_the_end_of_its_user_ends_the_command(job: JobServer) -> None:
    """By a signal, by a killed client, and by a reader of its output that has enough."""
    line = "echo $$; exec sleep 1000"
    for end, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        with begun(job, "train", "--", "bash", "-c", line) as verb:
            assert verb.stdout is not None
            pid = int(verb.stdout.readline())
            verb.send_signal(end)
            assert verb.wait(LONGEST_SECONDS) == code
            wait_until("the command has ended", lambda pid=pid: is_gone(pid))
    with begun(job, "train", "--", "bash", "-c", "echo $$; exec yes") as verb:
        assert verb.stdout is not None
        pid = int(verb.stdout.readline())
        verb.stdout.close()
        assert verb.wait(LONGEST_SECONDS) == 128 + signal.SIGPIPE
        wait_until("the command has ended", lambda: is_gone(pid))


def test_it_ends_with_the_job_which_does_not_count_it_as_left(job: JobServer) -> None:
    """Also what ignores its hang-up, and what it has started in the background in a session of its own."""
    line = "trap '' HUP TERM; setsid sleep 1000 & echo $$ $!; while true; do sleep 0.05; done"
    with begun(job, "train", "--", "bash", "-c", line) as verb:
        assert verb.stdout is not None
        assert verb.stderr is not None
        pids = [int(word) for word in verb.stdout.readline().split()]
        job.ok("job", "stop", "train")
        assert verb.wait(LONGEST_SECONDS) == OURS
        assert verb.stderr.read() == b"gyre job shell: the job has ended\n"
    assert job.verb("job", "wait", "train").returncode != 0
    assert all(is_gone(pid) for pid in pids)
    assert "left" not in job.ok("job", "events", "train")
    ended = shell(job, "train", "--", "true")
    assert ended.returncode == OURS
    assert ended.stderr.decode() == "gyre job shell: job 'train' does not run: it has failed\n"


def test_what_fails_in_a_shell_is_not_said_of_the_job(server: JobServer) -> None:
    """A `gyre run` there noted its rank that failed first where the job's own does, and the job's error named it."""
    server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
    line = f"touch {server.share}/runs; until [ -e {server.share}/go ]; do sleep 0.05; done; exit 9"
    server.ok("job", "submit", str(server.job_file(server.custom(line))), "-n", "train")
    wait_until("the job runs", (server.share / "runs").exists)
    ranks = '"$GYRE_PROGRAM" run -n 2 -- sh -c \'[ "$GYRE_RANK" = 1 ] || exec sleep 1000; exit 4\''
    failed = shell(server, "train", "--", "sh", "-c", ranks)
    assert "rank 1 of 2 failed first" in failed.stderr.decode()
    (server.share / "go").touch()
    assert server.verb("job", "wait", "train").returncode == 9
    (error,) = server.json("job", "show", "train")["properties"]["executionInfo"]["errors"]
    assert {"name": "rank", "value": "0"} in error["details"], error


def test_a_job_that_waits_or_is_being_prepared_is_refused_in_one_sentence(server: JobServer) -> None:
    server.ok("cluster", "create", "pool", "-t", "1", "--mount", f"external={server.share}")
    go = server.share / "go"
    preparation = f"touch {server.share}/prepares; while [ ! -e {go} ]; do sleep 0.05; done"
    server.ok("job", "submit", "-n", "slow", "--preparation", preparation, "--", "sleep", "1000")
    server.ok("job", "submit", "-n", "next", "--", "sleep", "1000")
    wait_until("the job is being prepared", (server.share / "prepares").exists)
    early = shell(server, "slow", "--", "true")
    assert early.returncode == OURS
    assert "the job is still being prepared on node" in early.stderr.decode()
    waits = shell(server, "next", "--", "true")
    assert waits.returncode == OURS
    assert waits.stderr.decode() == "gyre job shell: job 'next' does not run: it is queued\n"
    go.touch()
    wait_until("the job runs", lambda: shell(server, "slow", "--", "true").returncode == 0)


def test_a_killed_server_ends_it_and_a_new_one_carries_new_ones(job: JobServer) -> None:
    with begun(job, "train", "--", "bash", "-c", "echo $$; exec sleep 1000") as verb:
        assert verb.stdout is not None
        assert verb.stderr is not None
        pid = int(verb.stdout.readline())
        job.restart(signal.SIGKILL)
        assert verb.wait(LONGEST_SECONDS) == OURS
        said = verb.stderr.read().decode()
        assert said == "gyre job shell: the connection to the service is lost, and the command is ended with it\n"
    wait_until("the command has ended", lambda: is_gone(pid))
    wait_until("a new one", lambda: shell(job, "train", "--", "true").returncode == 0)


def test_a_user_has_many_at_once(job: JobServer) -> None:
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(shell(job, "train", "--", "echo", str(i)).stdout))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST_SECONDS)
    assert sorted(results) == [f"{i}\n".encode() for i in range(8)]


@contextmanager
def on_terminal(server: JobServer, *words: str) -> Iterator[Terminal]:
    """A shell of the job `train`, once it asks for a line. Its prompt is `ready$ `."""
    command = [str(server.gyre), "job", "shell", "train", *words]
    with terminal(command, {**server.environment, "TERM": "xterm"}, columns=100) as opened:
        opened.wait_for(lambda lines: any(line.endswith(("$", "#")) for line in lines))
        opened.type("PS1='ready$ '\r")
        opened.wait_for(lambda lines: lines[-1] == "ready$")
        yield opened


def answer(opened: Terminal, line: str) -> list[str]:
    """Types a line, and waits until the shell asks for the next one; what the screen shows then."""
    prompts = sum("ready$" in shown for shown in opened.lines())
    opened.type(line + "\r")
    opened.wait_for(lambda lines: lines[-1] == "ready$" and sum("ready$" in shown for shown in lines) > prompts)
    return opened.lines()


def sleep_in_foreground(opened: Terminal) -> None:
    opened.type("bash -c 'echo be\"\"gun; exec sleep 1000'\r")
    opened.wait_for(lambda lines: lines[-1] == "begun")


def test_a_terminal_has_its_size_its_keys_and_job_control_and_is_put_back_at_the_end(job: JobServer) -> None:
    with on_terminal(job) as opened:
        assert not opened.modes_are_unchanged()  # Every key goes to the other side as it is.
        assert answer(opened, "stty size; echo $TERM $COLOUR")[-3:-1] == ["24 100", "xterm blue"]
        opened.resize(90, 30)
        wait_until("the new size has arrived", lambda: answer(opened, "stty size")[-2] == "30 90")
        sleep_in_foreground(opened)
        opened.press_control_c()
        opened.wait_for(lambda lines: lines[-1] == "ready$")
        assert answer(opened, "echo code $?")[-2] == "code 130"
        sleep_in_foreground(opened)
        opened.type("\x1a")
        opened.wait_for(lambda lines: any("Stopped" in line for line in lines) and lines[-1] == "ready$")
        assert "é" in answer(opened, "kill %1; echo é")
        opened.type("exit 5\r")
        assert opened.wait_for_end() == 5
        assert opened.is_restored()
    with on_terminal(job) as opened:
        opened.type("\x04")
        assert opened.wait_for_end() == 0
        assert opened.is_restored()


def agent_of(server: JobServer, node: str) -> int:
    return int((server.folder / "nodes" / node / "agent.lock").read_text())


def test_the_escape_keys_leave_a_node_that_hangs_and_are_keys_elsewhere(job: JobServer) -> None:
    """Ctrl-C and all other keys go to the node, which does not answer."""
    with on_terminal(job) as opened:
        assert answer(opened, "echo a~.b")[-2] == "a~.b"
        opened.type("~~x\x15")  # What of it went to the shell is erased.
        node = answer(opened, "echo node $AZ_BATCH_NODE_ID")[-2].removeprefix("node ")
        agent = agent_of(job, node)
        os.kill(agent, signal.SIGSTOP)
        try:
            opened.type("echo more than the stream's window: " + "x" * 70_000 + "\x03\r~")
            opened.read()
            assert opened.process.poll() is None
            opened.type(".")
            assert opened.wait_for_end() == OURS
            assert opened.modes_are_unchanged()
            assert opened.lines()[-1] == "gyre job shell: left, and the command is ended with it"
        finally:
            os.kill(agent, signal.SIGCONT)
    with on_terminal(job, "--escape", "none") as opened:
        opened.type("~.\x15")
        assert answer(opened, "echo here")[-2] == "here"
        opened.type("exit 4\r")
        assert opened.wait_for_end() == 4


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_terminal_is_put_back_when_a_signal_ends_the_client(job: JobServer, ending: signal.Signals) -> None:
    with on_terminal(job) as opened:
        shown = answer(opened, "echo pid-$$")[-2]
        opened.process.send_signal(ending)
        assert opened.wait_for_end() == 128 + ending
        assert opened.modes_are_unchanged()
        wait_until("the shell has ended", lambda: is_gone(int(shown.removeprefix("pid-"))))


def test_a_terminal_is_put_back_when_the_job_or_the_server_ends(job: JobServer) -> None:
    with on_terminal(job) as opened:
        job.restart(signal.SIGKILL)
        assert opened.wait_for_end() == OURS
        assert opened.modes_are_unchanged()
        assert any("the connection to the service is lost" in line for line in opened.lines())
    wait_until("a new one", lambda: shell(job, "train", "--", "true").returncode == 0)
    with on_terminal(job) as opened:
        job.ok("job", "stop", "train")
        assert opened.wait_for_end() == OURS
        assert opened.modes_are_unchanged()
        assert any(line.endswith("gyre job shell: the job has ended") for line in opened.lines())


def test_a_terminal_can_be_asked_for_and_refused(job: JobServer) -> None:
    asked = shell(job, "train", "-t", "--", "sh", "-c", "tty; cat", data=b"typed\n")
    lines = asked.stdout.split(b"\r\n")
    assert any(line.startswith(b"/dev/pts/") for line in lines)
    assert lines.count(b"typed") == 2  # The terminal has shown it, and cat.
    assert asked.returncode == 0  # The end of its input was typed for it.
    with terminal([str(job.gyre), "job", "shell", "train", "-T", "--", "tty"], job.environment) as opened:
        assert opened.wait_for_end() == 1
        assert opened.lines() == ["not a tty"]
