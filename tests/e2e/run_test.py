"""`gyre run` as its users meet it: what it prints, how it ends a job that breaks, that nothing is ever left behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path

import pytest
from effort import rounds, seeded_random
from machine import Stopwatch
from running_job import Job, StartJob, block_of, wait_until

SLEEP = ["--", "sleep", "1000"]
# Ends only when killed, with a grandchild that does the same.
STUBBORN = ["--", "bash", "-c", "trap '' TERM INT; echo deaf; sleep 1000 & while :; do wait; sleep 1000; done"]


def shell(script: str) -> list[str]:
    return ["--", "bash", "-c", script]


def python(script: str) -> list[str]:
    return ["--", sys.executable, "-c", script]


# What it prints


def test_every_line_carries_its_rank_and_keeps_its_stream(start_job: StartJob) -> None:
    job = start_job("-n", "3", *shell("echo out $GYRE_RANK of $GYRE_SIZE; echo err $GYRE_RANK >&2"))
    assert job.wait() == 0
    assert sorted(job.stdout.splitlines()) == [f"[{rank}] out {rank} of 3" for rank in range(3)]
    assert sorted(job.stderr.splitlines()) == [f"[{rank}] err {rank}" for rank in range(3)]


def test_lines_of_many_ranks_are_never_mixed(start_job: StartJob) -> None:
    script = "import os\nfor i in range(300): print(os.environ['GYRE_RANK'] * 700, flush=i % 7 == 0)"
    job = start_job("-n", "4", *python(script))
    assert job.wait() == 0
    lines = job.stdout.splitlines()
    assert len(lines) == 4 * 300
    assert set(lines) == {f"[{rank}] {str(rank) * 700}" for rank in range(4)}


def test_bytes_and_lines_without_an_end_pass_unharmed(start_job: StartJob, tmp_path: Path) -> None:
    raw = bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"")
    script = f"import os; os.write(1, {raw!r} + b'\\n' + b'no newline')"
    job = start_job("--log-dir", "logs", *python(script))
    assert job.wait() == 0
    assert job.stdout_path.read_bytes() == b"[0] " + raw + b"\n[0] no newline\n"
    assert (tmp_path / "logs" / "rank-0.log").read_bytes() == raw + b"\nno newline"


def test_an_endless_line_is_shown_in_pieces_and_logged_whole(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job("--log-dir", "logs", *python("print('x' * 1_000_000)"))
    assert job.wait() == 0
    pieces = job.stdout.splitlines()
    assert all(piece.startswith("[0] x") and len(piece) <= (64 << 10) + 4 for piece in pieces)
    assert "".join(piece[4:] for piece in pieces) == "x" * 1_000_000
    assert (tmp_path / "logs" / "rank-0.log").read_text() == "x" * 1_000_000 + "\n"


def test_each_rank_has_a_log_file_with_both_streams(start_job: StartJob, tmp_path: Path) -> None:
    # The streams are two pipes: what was written first is known only once it has arrived.
    arrived = "until grep -q %s a/b/logs/rank-$GYRE_RANK.log; do sleep 0.01; done"
    script = f"echo one $GYRE_RANK; {arrived % 'one'}; echo two >&2; {arrived % 'two'}; echo three"
    job = start_job("-n", "2", "--log-dir", "a/b/logs", *shell(script))
    assert job.wait() == 0
    for rank in range(2):
        assert (tmp_path / "a" / "b" / "logs" / f"rank-{rank}.log").read_text() == f"one {rank}\ntwo\nthree\n"


def test_without_a_terminal_a_progress_bar_leaves_its_last_state(start_job: StartJob) -> None:
    job = start_job(*python("import sys; sys.stderr.write('\\r10%\\r50%\\r100%\\n')"))
    assert job.wait() == 0
    assert job.stderr == "[0] 100%\n"


def run_on_terminal(command: list[str], env: dict[str, str], seen: dict[bytes, Path]) -> bytes:
    """All that appears on a terminal of 80 columns. When bytes of `seen` have, the file is made."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=side, stderr=side, env={**os.environ, **env})
    os.close(side)
    shown = b""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and select.select([main], [], [], 30)[0]:
        try:
            data = os.read(main, 4096)
        except OSError:
            break  # The other side was closed: the program has ended.
        shown += data
        for words, path in seen.items():
            if words in shown:
                path.touch()
    os.close(main)
    assert process.wait(30) == 0
    return shown


def test_a_terminal_gets_colours_and_a_live_bar(gyre: Path, tmp_path: Path) -> None:
    script = f"""
import os, time
for percent in (10, 50):
    os.write(2, b"\\r%d%%" % percent)
    while not os.path.exists(f"{tmp_path}/{{percent}}"):
        time.sleep(0.01)
os.write(2, b"\\r100%\\n")
"""
    command = [str(gyre), "run", "--", sys.executable, "-c", script]
    seen = {f"{percent}%".encode(): tmp_path / str(percent) for percent in (10, 50)}
    shown = run_on_terminal(command, {"TERM": "xterm", "NO_COLOR": ""}, seen)
    prefix = b"\x1b[36m[0] \x1b[0m"
    assert shown == prefix + b"10%\r\x1b[K" + prefix + b"50%\r\x1b[K" + prefix + b"100%\r\n"
    plain = run_on_terminal([str(gyre), "run", "--", "echo", "hello"], {"TERM": "xterm", "NO_COLOR": "1"}, {})
    assert plain == b"[0] hello\r\n"


# What a rank is given


def test_ranks_get_the_contract_and_no_other_descriptor(start_job: StartJob) -> None:
    script = """
import os
fds = {}
for fd in os.listdir("/proc/self/fd"):
    try:
        fds[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        pass  # The descriptor that listed the folder.
key_fd = int(os.environ["GYRE_KEY_FD"])
allowed = {0, 1, 2, key_fd, int(os.environ["GYRE_ENDED_FD"]), int(os.environ["GYRE_FAILURE_FD"])}
if os.environ["GYRE_RANK"] == "0":
    allowed.add(int(os.environ["GYRE_RENDEZVOUS_FD"]))
else:
    assert "GYRE_RENDEZVOUS_FD" not in os.environ
extra = {fd: target for fd, target in fds.items() if fd not in allowed}
assert not extra, extra
assert fds[0] == "/dev/null", fds
key = os.pread(key_fd, 100, 0)
assert len(key) == 32
try:
    os.pwrite(key_fd, b"x", 0)
except PermissionError:
    print(key.hex())
try:
    os.write(int(os.environ["GYRE_ENDED_FD"]), b"x")
except OSError:
    pass
else:
    raise AssertionError("a rank can write what only the launcher knows")
"""
    keys = []
    for _ in range(2):
        job = start_job("-n", "3", *python(script))
        assert job.wait() == 0, job.stderr
        keys.append({line.split()[1] for line in job.stdout.splitlines()})
        assert len(job.stdout.splitlines()) == 3
        assert len(keys[-1]) == 1, "ranks of one job have different keys"
    assert keys[0] != keys[1], "two jobs have the same key"


def test_rank_0_holds_a_socket_that_already_listens(start_job: StartJob) -> None:
    script = """
import os, socket
name = os.environ["GYRE_RENDEZVOUS"]
assert name.startswith("unix:@")
if os.environ["GYRE_RANK"] == "0":
    listener = socket.socket(fileno=int(os.environ["GYRE_RENDEZVOUS_FD"]))
    for _ in range(3):
        listener.accept()[0].sendall(b"welcome")
else:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect("\\0" + name[len("unix:@"):])
    assert peer.recv(7) == b"welcome"
"""
    job = start_job("-n", "4", *python(script))
    assert job.wait() == 0, job.stderr


def test_the_key_is_in_no_argument_and_no_variable(start_job: StartJob) -> None:
    script = "import os; k = os.pread(int(os.environ['GYRE_KEY_FD']), 32, 0)\n"
    script += "seen = b''.join(open(f'/proc/{p}/{f}', 'rb').read() for p in ('self', os.getppid()) "
    script += "for f in ('environ', 'cmdline'))\nassert k not in seen and k.hex().encode() not in seen"
    job = start_job(*python(script))
    assert job.wait() == 0, job.stderr


def test_threads_are_shared_out_unless_the_user_has_said_how_many(start_job: StartJob) -> None:
    cores = len(os.sched_getaffinity(0))
    for ranks in (1, cores, 2 * cores):
        job = start_job("-n", str(ranks), *shell("echo $OMP_NUM_THREADS"), env={"OMP_NUM_THREADS": ""})
        assert job.wait() == 0
        assert {line.split()[1] for line in job.stdout.splitlines()} == {str(max(1, cores // ranks))}
    for job in (
        start_job("-n", "2", *shell("echo $OMP_NUM_THREADS"), env={"OMP_NUM_THREADS": "7"}),
        start_job("-n", "2", "--env", "OMP_NUM_THREADS=7", *shell("echo $OMP_NUM_THREADS")),
    ):
        assert job.wait() == 0
        assert job.stdout.splitlines() == ["[0] 7", "[1] 7"] or job.stdout.splitlines() == ["[1] 7", "[0] 7"]


# How it ends


def test_a_rank_that_exits_3_ends_the_job_with_3(start_job: StartJob) -> None:
    job = start_job("-n", "3", *shell("echo rank $GYRE_RANK; [ $GYRE_RANK = 1 ] && exit 3; exec sleep 1000"))
    assert job.wait() == 3
    block = block_of(job)
    assert "rank 1 of 3" in block["title"]
    assert "exit code 3" in block["title"]
    assert block["others"] == "2 ranks were ended because of it: 0, 2"
    assert "    | rank 1\n" in job.stderr


def test_a_rank_that_ends_early_with_0_is_no_failure(start_job: StartJob) -> None:
    job = start_job("-n", "3", *shell("[ $GYRE_RANK = 1 ] || sleep 0.3; echo done $GYRE_RANK"))
    assert job.wait() == 0
    assert job.stderr == ""
    assert len(job.stdout.splitlines()) == 3


def test_a_rank_that_ended_early_is_mentioned_when_others_fail(start_job: StartJob) -> None:
    # Rank 1 waits until rank 0 has ended, and then a moment longer, in which the launcher can notice.
    script = """
if [ $GYRE_RANK = 0 ]; then echo $$ >new; mv new pid; exit 0; fi
until [ -e pid ]; do sleep 0.01; done
while grep -qs 'State:[[:space:]]*[^Z[:space:]]' /proc/$(cat pid)/status; do sleep 0.01; done
sleep 0.3
exit 9
"""
    job = start_job("-n", "2", *shell(script))
    assert job.wait() == 9
    assert block_of(job)["before it"] == "rank 0 had already ended with exit code 0"


def test_the_last_lines_are_those_of_the_failed_rank(start_job: StartJob) -> None:
    job = start_job(
        "-n",
        "2",
        *shell("for i in $(seq 100); do echo $GYRE_RANK:$i; done; [ $GYRE_RANK = 1 ] && exit 4; exec sleep 1000"),
    )
    assert job.wait() == 4
    assert re.findall(r"^    \| (.*)$", job.stderr, re.MULTILINE) == [f"1:{i}" for i in range(86, 101)]


@pytest.mark.parametrize("others", [SLEEP, STUBBORN], ids=["obedient", "stubborn"])
def test_a_killed_rank_ends_the_job_within_a_second(start_job: StartJob, others: list[str]) -> None:
    moments = seeded_random()
    for _ in range(rounds(8, 25)):
        job = start_job("-v", "-n", "4", "--log-dir", "logs", *others)
        pids = job.rank_pids(4)
        victim = moments.randrange(4)
        time.sleep(moments.random() * 0.1)
        with Stopwatch() as watch:
            os.kill(pids[victim], signal.SIGKILL)
            assert job.wait() == 128 + signal.SIGKILL
        assert watch.seconds < 1.0, watch
        block = block_of(job)
        assert f"rank {victim} of 4 failed first" in block["title"]
        assert "SIGKILL" in block["title"]
        assert block["pid"] == str(pids[victim])
        assert block["log file"] == f"logs/rank-{victim}.log"
        assert not job.processes()


def test_ranks_that_fail_because_another_was_killed_are_not_blamed(start_job: StartJob) -> None:
    # Rank 2 is killed; the others notice while it still dies and exit with 1, which the launcher may well see first.
    script = """
import os, signal, socket, time
rank, name = int(os.environ["GYRE_RANK"]), "\\0" + os.environ["GYRE_RENDEZVOUS"][6:] + "-2"
if rank == 2:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    peers = [listener.accept()[0] for _ in range(3)]
    ballast = bytearray(100 << 20)  # Memory makes dying slow.
    [peer.sendall(str(os.getpid()).encode()) for peer in peers]
    os.kill(os.getpid(), signal.SIGKILL)
peer = socket.socket(socket.AF_UNIX)
while peer.connect_ex(name):
    time.sleep(0.001)
path = f"/proc/{peer.recv(20).decode()}/stat"
PF_EXITING = 4
while os.path.exists(path) and not int(open(path).read().rpartition(")")[2].split()[6]) & PF_EXITING:
    time.sleep(0.001)
os._exit(1)
"""
    for _ in range(5):
        job = start_job("-n", "4", *python(script))
        assert job.wait() == 128 + signal.SIGKILL
        assert "rank 2 of 4 failed first" in block_of(job)["title"]


def test_a_grandchild_does_not_outlive_its_rank(start_job: StartJob) -> None:
    job = start_job("-n", "2", *shell("sleep 1000 & setsid sleep 1001 & echo started"))
    assert job.wait() == 0
    assert not job.processes()


def test_sigterm_ends_the_ranks_and_exits_143(start_job: StartJob) -> None:
    job = start_job("-n", "2", *shell("trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.05; done"))
    wait_until("both shells trap SIGTERM", lambda: job.stdout.count("ready") == 2)
    job.process.terminate()
    assert job.wait() == 143
    assert job.stdout.count("asked") == 2
    assert "stopped by SIGTERM" in job.stderr
    assert "failed first" not in job.stderr


def test_ctrl_c_is_handed_on_and_a_second_one_kills(start_job: StartJob) -> None:
    job = start_job("-v", "-n", "2", *shell("trap 'echo asked' INT; echo ready; while :; do sleep 0.05; done"))
    wait_until("both ranks are ready", lambda: job.stdout.count("ready") == 2)
    job.process.send_signal(signal.SIGINT)
    wait_until("both ranks were told", lambda: job.stdout.count("asked") == 2)
    assert job.process.poll() is None
    assert job.stderr.count("Ctrl-C: stopping the ranks") == 1
    with Stopwatch() as watch:
        job.process.send_signal(signal.SIGINT)
        assert job.wait() == 130
    assert watch.seconds < 1.0, watch
    assert not job.processes()
    assert "failed first" not in job.stderr


def test_stubborn_ranks_are_killed_after_the_grace_time(start_job: StartJob) -> None:
    job = start_job("-v", "-n", "2", "--grace-seconds", "1", *STUBBORN)
    wait_until("both ranks ignore signals", lambda: job.stdout.count("deaf") == 2)
    with Stopwatch() as watch:
        job.process.send_signal(signal.SIGINT)
        assert job.wait() == 130
    assert watch.elapsed_seconds > 0.9
    assert watch.seconds < 2.5, watch
    assert "ranks 0, 1 had not stopped after 1 s and were killed" in job.stderr


@pytest.mark.parametrize("grandchild", ["sleep 1000", "setsid sleep 1000", "env -i sleep 1000"])
def test_killing_the_launcher_leaves_nothing(start_job: StartJob, grandchild: str) -> None:
    job = start_job("-v", "-n", "3", *shell(f"{grandchild} & echo $! ready; wait"))
    wait_until("all ranks are ready", lambda: job.stdout.count("ready") == 3)
    grandchildren = [int(line.split()[1]) for line in job.stdout.splitlines()]
    with Stopwatch() as watch:
        job.process.kill()
        job.process.wait()
        wait_until("all processes are gone", lambda: not job.processes())
        for pid in grandchildren:
            wait_until(f"grandchild {pid} is gone", partial(has_ended, pid))
    assert watch.seconds < 2.0, watch


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def is_gone(job: Job) -> bool:
    return not job.processes()


def test_killing_the_launcher_at_any_moment_leaves_nothing(start_job: StartJob) -> None:
    moments = seeded_random()
    for _ in range(20):
        job = start_job("-n", "4", *shell("sleep 1000 & sleep 1000"))
        time.sleep(moments.random() * 0.05)
        with Stopwatch() as watch:
            job.process.kill()
            job.process.wait()
            wait_until("all processes are gone", partial(is_gone, job))
        assert watch.seconds < 2.0, watch


def test_the_guardian_is_not_found_under_the_launchers_name(start_job: StartJob) -> None:
    job = start_job("-v", *SLEEP)
    job.rank_pids(1)
    # It renames itself some time after the fork; until then it looks like the launcher.
    wait_until(
        "launcher, guardian and rank are there, one of them renamed",
        lambda: len(job.processes()) == 3 and "job-guardian" in str(job.processes()),
    )
    guardians = [process for process in job.processes() if "job-guardian" in process]
    assert len(guardians) == 1
    assert "gyre" not in guardians[0]
    assert Path(f"/proc/{guardians[0].split()[0]}/comm").read_text() == "job-guardian\n"
    job.process.terminate()
    assert job.wait() == 143


def test_a_reader_who_stops_reading_does_not_keep_the_job_alive(gyre: Path) -> None:
    command = [str(gyre), "run", "-n", "2", "--", "yes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 128 + signal.SIGPIPE


# What it refuses


def refusal(job: Job, code: int) -> str:
    """The one line that it says."""
    assert job.wait() == code, job.stderr
    assert job.stdout == ""
    return job.stderr


def test_a_command_that_does_not_exist_is_one_clear_message(start_job: StartJob) -> None:
    assert refusal(start_job("-n", "4", "--", "no-such-command"), 127) == (
        "gyre run: cannot start 'no-such-command': command not found in any folder of PATH\n"
    )
    assert refusal(start_job("-n", "4", "--log-dir", "logs", "./missing"), 127).count("\n") == 1


def test_a_file_that_cannot_be_run_is_one_clear_message(start_job: StartJob, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    assert refusal(start_job("./train.py"), 126) == (
        "gyre run: cannot start './train.py': Permission denied; start a Python script as `python ./train.py`\n"
    )
    (tmp_path / "train.py").chmod(0o755)
    assert "a script with a first line like" in refusal(start_job("./train.py"), 126)
    (tmp_path / "train.py").write_text("#!/no/such/python\n")
    assert "interpreter" in refusal(start_job("./train.py"), 126)
    assert "Is a directory" in refusal(start_job("/"), 126)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "0", "true"], "-n is '0'; a whole number from 1 to 4096 is needed"),
        (["-n", "4097", "true"], "from 1 to 4096"),
        (["-n", "two", "true"], "-n is 'two'"),
        (["--log-dri", "logs", "true"], "unknown option --log-dri; did you mean --log-dir?"),
        (["--env", "NAME", "true"], "--env needs NAME=VALUE, not 'NAME'"),
        (["-n", "2"], "no command to run"),
        (["-n"], "-n needs a value"),
        ([], "no command to run"),
    ],
)
def test_a_wrong_option_is_refused_with_2(start_job: StartJob, arguments: list[str], words: str) -> None:
    message = refusal(start_job(*arguments), 2)
    assert words in message
    assert message.endswith("See `gyre run --help`.\n")


def test_a_log_directory_that_cannot_be_written_is_refused_before_anything_starts(
    start_job: StartJob, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    message = refusal(start_job("--log-dir", "file/logs", "--", "touch", "started"), 1)
    assert message.startswith("gyre run: cannot create the log directory file/logs")
    assert not (tmp_path / "started").exists()


def test_a_mistyped_verb_suggests_the_right_one(gyre: Path) -> None:
    done = subprocess.run([str(gyre), "rnu", "-n", "2"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "unknown command 'rnu'; did you mean 'run'?" in done.stderr


def test_help_and_version_go_to_stdout(gyre: Path) -> None:
    for arguments, words in (
        (["--help"], "run"),
        (["run", "--help"], "gyre run -n 4 -- python train.py"),
        (["--version"], "gyre "),
    ):
        done = subprocess.run([str(gyre), *arguments], capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert words in done.stdout
