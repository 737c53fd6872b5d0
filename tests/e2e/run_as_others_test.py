"""`gyre run` in place of torchrun and horovodrun: their options, their variables, several hosts through ssh."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import Stopwatch, free_port
from running_job import Job, StartJob, block_of, wait_until
from ssh_hosts import SshHosts, ssh_hosts

SCRIPT = str(Path(__file__).resolve().parent.parent / "support" / "place_of_rank.py")
PACKAGE = str(Path(__file__).resolve().parent.parent.parent / "python")
# Ranks that import torch, on a machine that has other things to do.
PATIENCE_SECONDS = 240.0
# A rank that needs no torch, so that it starts at once.
SLEEPER = ["sh", "-c", "echo up $GYRE_RANK of $GYRE_SIZE on $GROUP_RANK; exec sleep 1000"]


def python_environment() -> dict[str, str]:
    """The ranks' `python` is this one."""
    return {
        "PYTHONPATH": PACKAGE,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }


def lines_of(job: Job) -> list[str]:
    return sorted(job.stdout.splitlines())


@pytest.mark.parametrize("backend", ["gloo", "gyre"])
def test_a_torchrun_script_runs_unchanged(start_job: StartJob, backend: str) -> None:
    options = ["--nproc_per_node=2", "--standalone", "--tee", "3"]
    job = start_job(*options, SCRIPT, backend, "--x=1", env=python_environment(), timeout=PATIENCE_SECONDS)
    assert job.wait() == 0, job.stderr
    assert lines_of(job) == [f"[{rank}] {rank} 2 {rank} 2 0 0 sum 3 --x=1" for rank in range(2)]


def test_a_module_and_a_restart(start_job: StartJob, tmp_path: Path) -> None:
    (tmp_path / "place.py").write_text(Path(SCRIPT).read_text())
    environment = python_environment()
    environment["PYTHONPATH"] += f":{tmp_path}"
    options = ["--nproc-per-node", "2", "--max-restarts", "2", "--rdzv-backend", "c10d", "-m", "place"]
    job = start_job(*options, "gyre", "--fail-once", env=environment, timeout=PATIENCE_SECONDS)
    assert job.wait() == 0, job.stderr
    assert "rank 1 of 2 failed first" in job.stderr
    assert "restart 1 of 2" in job.stderr
    assert [line.split()[6] for line in lines_of(job)] == ["0", "1", "0", "1"]


def test_programs_without_python_and_horovodruns_options(start_job: StartJob) -> None:
    job = start_job("--nproc-per-node", "2", "--no-python", "sh", "-c", "echo $RANK $MASTER_ADDR")
    assert job.wait() == 0, job.stderr
    assert lines_of(job) == ["[0] 0 127.0.0.1", "[1] 1 127.0.0.1"]
    words = "echo $GYRE_FUSION_BYTES $GYRE_STALL_WARNING_SECONDS $GYRE_START_TIMEOUT_SECONDS"
    options = ["-np", "1", "--fusion-threshold-mb", "32", "--stall-check-warning-time-seconds", "5", "--gloo"]
    job = start_job(*options, "--start-timeout", "9", "--cycle-time-ms", "3", "sh", "-c", words)
    assert job.wait() == 0, job.stderr
    assert lines_of(job) == ["[0] 32MB 5 9"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--nnodes", "2", "--nproc-per-node", "1"], "--nnodes needs --node-rank"),
        (["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "h:1"], "GYRE_KEY_FILE"),
        (["--nnodes", "1:4", "--nproc-per-node", "1"], "give a number"),
        (["-n", "2", "--nproc-per-node", "2"], "either -n or --nproc-per-node"),
        (["--nproc-per-node", "gpu"], "give a number"),
        (["-H", "a:0"], "-H: 'a:0': a host has 1 to 4096 slots"),
        (["-H", "a:1", "-np", "2"], "the hosts have 1 slots in all"),
    ],
)
def test_options_that_make_no_sense_are_one_line(start_job: StartJob, options: list[str], words: str) -> None:
    job = start_job(*options, "true", env=python_environment())
    assert job.wait() == 2
    assert words in job.stderr


def test_two_launchers_make_one_job(start_job: StartJob, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(secrets.token_bytes(32))
    key.chmod(0o600)
    options = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--nproc-per-node", "1"]
    environment = {**python_environment(), "GYRE_KEY_FILE": str(key)}
    jobs = [
        start_job(*options, "--node-rank", str(node), SCRIPT, "gyre", env=environment, timeout=PATIENCE_SECONDS)
        for node in range(2)
    ]
    for node, job in enumerate(jobs):
        assert job.wait() == 0, job.stderr
        assert lines_of(job) == [f"[{node}] {node} 2 0 1 {node} 0 sum 3"]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with ssh_hosts(tmp_path_factory.mktemp("ssh"), 2) as running:
        yield running


def over_ssh(hosts: SshHosts, slots: list[int]) -> list[str]:
    names = ",".join(f"{name}:{count}" for name, count in zip(hosts.names, slots, strict=True))
    return ["--ssh", hosts.command, "-p", str(hosts.port), "-i", str(hosts.identity), "-H", names]


@pytest.mark.parametrize("name", ["localhost", socket.gethostname()])
def test_this_host_needs_no_ssh(start_job: StartJob, name: str) -> None:
    options = ["--ssh", "no-such-program", "-np", "2", "-H", f"{name}:3"]
    job = start_job(*options, "python", SCRIPT, "gyre", env=python_environment(), timeout=PATIENCE_SECONDS)
    assert job.wait() == 0, job.stderr
    assert lines_of(job) == ["[0] 0 2 0 2 0 0 sum 3", "[1] 1 2 1 2 0 0 sum 3"]


def test_bytes_that_are_no_text_reach_the_ranks_of_every_host(gyre: Path, tmp_path: Path) -> None:
    # Environments and arguments are bytes; file names of old systems are in them.
    environment = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
    environment |= {b"GYRE_LATIN": b"caf\xe9 \xc3\xa9", b"NOT_FOR_OTHERS": b"\xff"}
    script = b'printf "%s|%s\\n" "$GYRE_LATIN" "$0"'
    command = [os.fsencode(gyre), b"run", b"-H", b"localhost:1", b"sh", b"-c", script, b"\xfe\xc3\xbc"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"[0] caf\xe9 \xc3\xa9|\xfe\xc3\xbc\n"


def test_this_host_and_others_are_one_job(start_job: StartJob, hosts: SshHosts) -> None:
    options = over_ssh(hosts, [1, 1])
    options[-1] = f"localhost:1,{hosts.names[0]}:1"
    job = start_job(*options, "python", SCRIPT, "gyre", env=python_environment(), timeout=PATIENCE_SECONDS)
    assert job.wait() == 0, job.stderr
    assert lines_of(job) == ["[0] 0 2 0 1 0 0 sum 3", "[1] 1 2 0 1 1 0 sum 3"]


def sleepers(job: Job) -> list[str]:
    """The job's ranks, on any of the hosts."""
    return [process for process in job.processes() if process.partition(" ")[2] == "sleep 1000"]


def agents(hosts: SshHosts) -> list[str]:
    """What our server runs: its children, and theirs."""
    shown = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in shown.splitlines()[1:]]
    family = {str(hosts.server)}
    while len(grown := family | {pid for pid, parent, _ in rows if parent in family}) > len(family):
        family = grown
    return [words for pid, _, words in rows if pid in family and "run --agent" in words]


def test_ranks_of_two_hosts_are_one_job(start_job: StartJob, hosts: SshHosts) -> None:
    job = start_job(
        *over_ssh(hosts, [1, 2]), "python", SCRIPT, "gyre", env=python_environment(), timeout=PATIENCE_SECONDS
    )
    assert job.wait() == 0, job.stderr
    expected = ["[0] 0 3 0 1 0 0 sum 6", "[1] 1 3 0 2 1 0 sum 6", "[2] 2 3 1 2 1 0 sum 6"]
    assert lines_of(job) == expected


@pytest.mark.parametrize("face", ["horovod", "torch"])
def test_a_rank_that_ends_before_it_joins_is_named_on_all_hosts(
    start_job: StartJob, hosts: SshHosts, face: str
) -> None:
    # The only rank of its host, so nobody there waits and could tell.
    join = {
        "horovod": "import gyre.torch as hvd; hvd.init()",
        "torch": "import gyre.distributed, torch.distributed as dist; dist.init_process_group('gyre')",
    }
    modules = "gyre.torch" if face == "horovod" else "gyre.distributed"
    # The others come to wait together, or the first of them would fail before the other can.
    script = f"""
import os, pathlib, sys, time
if os.environ["RANK"] == "2":
    sys.exit()
import {modules}
pathlib.Path("ready-" + os.environ["RANK"]).touch()
while len(list(pathlib.Path(".").glob("ready-*"))) < 2:
    time.sleep(0.01)
{join[face]}
"""
    environment = {**python_environment(), "GYRE_START_TIMEOUT_SECONDS": "1000"}
    job = start_job(*over_ssh(hosts, [2, 1]), "python", "-c", script, env=environment, timeout=PATIENCE_SECONDS)
    assert job.wait() == 1, job.stderr
    for rank in (0, 1):
        words = r"PeerLostError: .*rank 2 \(host \S+, pid \d+\) ended with exit code 0 and can no longer join"
        assert len(re.findall(rf"^\[{rank}\] .*{words}", job.stderr, re.MULTILINE)) == 1, job.stderr
    assert "gyre-agent" not in job.stderr


def test_the_first_failure_ends_all_hosts_and_is_told_once(start_job: StartJob, hosts: SshHosts) -> None:
    script = "[ $GYRE_RANK = 1 ] && exit 0; [ $GYRE_RANK = 2 ] && { sleep 1; echo bad; exit 7; }; exec sleep 1000"
    job = start_job(*over_ssh(hosts, [2, 2]), "sh", "-c", script, env=python_environment())
    assert job.wait() == 7, job.stderr
    block = block_of(job)
    assert "rank 2 of 4 failed first" in block["title"]
    assert block["others"] == "2 ranks were ended because of it: 0, 3"
    assert block["before it"] == "rank 1 had already ended with exit code 0"
    assert "    | bad\n" in job.stderr
    assert not sleepers(job)
    assert not agents(hosts)


def test_what_killed_a_rank_of_another_host_outweighs_the_errors_that_it_caused(
    start_job: StartJob, hosts: SshHosts, tmp_path: Path
) -> None:
    # Ranks 0 and 1 fail in Python on their hosts, as ranks do that lose another; rank 2 is killed a moment later.
    script = tmp_path / "train.py"
    script.write_text("""
import os, time

def ended(rank):
    return os.path.exists(f"pid-{rank}") and not os.path.exists(f"/proc/{open(f'pid-{rank}').read()}/exe")

rank = int(os.environ["RANK"])
with open(f"part-{rank}", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"part-{rank}", f"pid-{rank}")
while not all(os.path.exists(f"pid-{other}") for other in range(3)):
    time.sleep(0.002)
if rank < 2:
    raise ConnectionError("rank 2 is gone")
while not (ended(0) and ended(1)):
    time.sleep(0.002)
os.kill(os.getpid(), 9)
""")
    command = over_ssh(hosts, [1, 2])
    job = start_job(*command, "python", str(script), env=python_environment())
    assert job.wait() == 128 + signal.SIGKILL, job.stderr
    assert "rank 2 of 3 failed first" in block_of(job)["title"]
    for rank in (0, 1):
        (line,) = [line for line in job.stderr.splitlines() if line.startswith(f"[{rank}]")]
        assert "train.py:14: ConnectionError: rank 2 is gone" in line, line


def test_ctrl_c_is_announced_and_handed_on_over_hosts(start_job: StartJob, hosts: SshHosts) -> None:
    script = "trap 'echo asked; exit 0' INT; echo up; while :; do sleep 0.05; done"
    job = start_job(*over_ssh(hosts, [1, 1]), "sh", "-c", script, env=python_environment())
    wait_until("both ranks run", lambda: job.stdout.count("up") == 2)
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130
    assert job.stdout.count("asked") == 2
    assert job.stderr.splitlines() == [
        "gyre run: Ctrl-C: stopping the ranks; they will be killed in 5 s, or at once by another Ctrl-C",
        "gyre run: stopped by SIGINT; all 2 ranks have ended",
    ]


def test_a_second_ctrl_c_kills_the_ranks_on_all_hosts(start_job: StartJob, hosts: SshHosts) -> None:
    script = "trap 'echo asked' INT TERM; echo up; while :; do sleep 0.05; done"
    job = start_job(*over_ssh(hosts, [1, 1]), "--grace-seconds", "60", "sh", "-c", script, env=python_environment())
    wait_until("both ranks run", lambda: job.stdout.count("up") == 2)
    job.process.send_signal(signal.SIGINT)
    wait_until("both ranks were told", lambda: job.stdout.count("asked") == 2)
    with Stopwatch() as watch:
        job.process.send_signal(signal.SIGINT)
        assert job.wait() == 130
    assert watch.seconds < 3.0, watch
    wait_until("no rank is left", lambda: not job.processes())


def test_a_command_that_one_host_cannot_start_ends_the_others(start_job: StartJob, hosts: SshHosts) -> None:
    job = start_job(*over_ssh(hosts, [1, 1]), "no-such-command", env=python_environment())
    assert job.wait() == 127
    assert "cannot start 'no-such-command': command not found" in job.stderr
    assert not agents(hosts)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_on_any_host(start_job: StartJob, hosts: SshHosts, number: signal.Signals) -> None:
    job = start_job(*over_ssh(hosts, [1, 1]), *SLEEPER, env=python_environment())
    wait_until("both ranks run", lambda: len(sleepers(job)) == 2)
    # Neither the key nor anything of the description stands in an argument.
    assert agents(hosts)
    assert all(words.endswith("gyre run --agent") or "exec sh -c" in words for words in agents(hosts)), agents(hosts)
    os.kill(job.process.pid, number)
    code = job.wait()
    assert code == (130 if number == signal.SIGINT else -9)
    wait_until("no rank is left", lambda: not sleepers(job))
    wait_until("no agent is left", lambda: not agents(hosts))


def test_a_host_that_cannot_be_reached_is_one_message(start_job: StartJob, hosts: SshHosts) -> None:
    options = ["--ssh", hosts.command, "-p", str(hosts.port), "-i", str(hosts.identity)]
    with Stopwatch() as watch:
        job = start_job(*options, "-H", f"{hosts.names[0]}:1,127.0.0.99:1", *SLEEPER, env=python_environment())
        assert job.wait() == 255
    assert watch.seconds < 10, watch
    words = [line for line in job.stderr.splitlines() if "cannot start a rank" in line]
    assert len(words) == 1, job.stderr
    assert "127.0.0.99" in words[0]
    assert "refused" in words[0]
    assert not sleepers(job)


def test_a_host_that_does_not_answer_is_one_message_within_10_seconds(start_job: StartJob, tmp_path: Path) -> None:
    # As ssh to a host that swallows packets, or that hangs at the login.
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o700)
    with Stopwatch() as watch:
        job = start_job("--ssh", str(silent), "-H", "node1:1,node2:1", *SLEEPER, env=python_environment())
        assert job.wait() == 255
    assert watch.seconds < 10, watch
    words = [line for line in job.stderr.splitlines() if "cannot start a rank" in line]
    assert words == ["gyre run: cannot start a rank on hosts node1: no answer within 7 s; node2: no answer within 7 s"]
    assert not job.processes()
