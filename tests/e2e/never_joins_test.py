"""A rank whose program ends in good order before it has joined leaves the others waiting for somebody who never comes:
the launcher knows, so each of them must say so at once, and not when a time limit is over.

Every time limit here is far above what a test may take.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from machine import free_port
from running_job import Job, StartJob, wait_until

PACKAGE = Path(__file__).resolve().parent.parent.parent / "python"
ENVIRONMENT = {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "GYRE_START_TIMEOUT_SECONDS": "600"}
LONGEST_SECONDS = 120.0

HOROVOD = "import gyre.torch as hvd; join = hvd.init"
TORCH = """
import torch.distributed as dist, gyre.distributed
def join(): dist.init_process_group("gyre")
"""
# The same, with a store of the program's own, which waits for nobody.
FILE_STORE = """
import torch.distributed as dist, gyre.distributed
def join():
    place = dict(rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    dist.init_process_group("gyre", init_method=f"file://{os.getcwd()}/store", **place)
"""
# argv: who ends, and whether only when the others wait for it already. All the others come to wait together: whoever is
# still busy with other things when the first one has failed is ended before it could say anything.
SCRIPT = """
import os, pathlib, sys, time
rank, size, ends, late = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"]), int(sys.argv[1]), sys.argv[2]
def await_all_others():
    while len(list(pathlib.Path(".").glob("ready-*"))) < size - 1:
        time.sleep(0.01)
if rank == ends:
    if late == "late":
        await_all_others()
        time.sleep(0.5)
    sys.exit()
{face}
pathlib.Path(f"ready-{{rank}}").touch()
await_all_others()
join()
print("joined")
"""


def start(start_job: StartJob, ranks: int, script: str, *arguments: str) -> Job:
    command = [sys.executable, "-c", script, *arguments]
    return start_job("-n", str(ranks), "--", *command, env={**os.environ, **ENVIRONMENT}, timeout=LONGEST_SECONDS)


def check_that_it_names(ended: int, rank: int, job: Job) -> None:
    """`rank` has said once what has happened: in a traceback, where torch puts the rank in front of the lines, too, or
    in the line in its place."""
    front = r"(?:\[rank\d\]: |<string>:\d+(?:, in \w+)?: )?"
    said = re.findall(rf"^\[{rank}\] {front}gyre\.errors\.PeerLostError: (.*)$", job.stderr, re.MULTILINE)
    assert len(said) == 1, job.stderr
    assert re.search(rf"rank {ended} \(host \S+, pid \d+\) ended with exit code 0 and can no longer join", said[0])


@pytest.mark.parametrize("face", [HOROVOD, TORCH, FILE_STORE], ids=["horovod", "torch", "file_store"])
@pytest.mark.parametrize(("ends", "when"), [(1, "late"), (0, "early")])
def test_every_other_rank_names_the_one_that_ended(start_job: StartJob, face: str, ends: int, when: str) -> None:
    job = start(start_job, 3, SCRIPT.format(face=face), str(ends), when)
    assert job.wait() == 1, job.stderr
    assert "joined" not in job.stdout
    for rank in {0, 1, 2} - {ends}:
        check_that_it_names(ends, rank, job)


def test_a_group_of_those_who_are_left_is_not_disturbed(start_job: StartJob) -> None:
    script = """
import os, sys, time, torch
import torch.distributed as dist, gyre.distributed
dist.init_process_group("gyre")
if dist.get_rank() == 1:
    sys.exit()
while b"rank 1 " not in os.pread(int(os.environ["GYRE_ENDED_FD"]), 512, 0):
    time.sleep(0.01)
group = dist.new_group([0, 2], use_local_synchronization=True)
total = torch.ones(3)
dist.all_reduce(total, group=group)
print("sum", total.tolist())
os._exit(0)  # Without a word to rank 1, which is gone.
"""
    job = start(start_job, 3, script)
    assert job.wait() == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == [f"[{rank}] sum [2.0, 2.0, 2.0]" for rank in (0, 2)]


def test_a_group_with_one_that_has_ended_fails_at_once(start_job: StartJob) -> None:
    script = """
import os, sys
import torch.distributed as dist, gyre.distributed
dist.init_process_group("gyre")
if dist.get_rank() == 1:
    sys.exit()
dist.new_group([0, 1], use_local_synchronization=True) if dist.get_rank() == 0 else None
"""
    job = start(start_job, 3, script)
    assert job.wait() == 1, job.stderr
    check_that_it_names(1, 0, job)


def test_a_smaller_world_of_the_programs_own_making_waits_for_its_ranks_alone(start_job: StartJob) -> None:
    script = """
import os, sys, time, torch
import torch.distributed as dist, gyre.distributed
if os.environ["RANK"] == "2":
    sys.exit()
while b"rank 2 " not in os.pread(int(os.environ["GYRE_ENDED_FD"]), 512, 0):
    time.sleep(0.01)
place = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
dist.init_process_group("gyre", init_method=place, rank=int(os.environ["RANK"]), world_size=2)
total = torch.ones(1)
dist.all_reduce(total)
print("sum", total.item())
dist.destroy_process_group()
"""
    job = start(start_job, 3, script)
    assert job.wait() == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == ["[0] sum 2.0", "[1] sum 2.0"]


def test_ranks_that_all_end_without_joining_are_a_success(start_job: StartJob) -> None:
    job = start_job("-n", "4", "--", "hostname", timeout=LONGEST_SECONDS)
    assert job.wait() == 0
    assert job.stderr == ""


def test_ranks_that_all_call_themselves_rank_zero_are_told_so(start_job: StartJob) -> None:
    """A script of one process, with the place of that one: torch says that an address is in use."""
    script = "import torch.distributed as dist, gyre.distributed\ndist.init_process_group('gyre', rank=0, world_size=2)"
    job = start(start_job, 2, script)
    assert job.wait() == 1
    assert "or a rank that calls itself rank 0 in init_process_group(), as this one does" in job.stderr
    assert "leave out rank and world_size, which `gyre run` sets" in job.stderr.partition("  error ")[2], job.stderr


def test_a_wait_for_ranks_that_nobody_has_started_is_announced(start_job: StartJob) -> None:
    """torch waits for them for half an hour."""
    script = (
        "import os, torch.distributed as dist, gyre.distributed\n"
        "dist.init_process_group('gyre', rank=int(os.environ['RANK']), world_size=3)"
    )
    job = start(start_job, 2, script)
    wait_until(
        "both ranks warn",
        lambda: job.stderr.count("waits for 3 ranks, and `gyre run` has started 2: leave out world_size") == 2,
        LONGEST_SECONDS,
    )
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130


LIMIT_SECONDS = 3
WAITED = r"rank {} of 2 has waited in init_process_group\(\) for {} at {}"


@pytest.mark.parametrize(
    ("node", "host", "whom", "reason"),
    [
        (0, "localhost", "the other ranks", ""),
        (1, "localhost", "rank 0", ": Connection refused"),
        (0, "nosuchhost.invalid", "the other ranks", r": the host name cannot be resolved \(.+\)"),
        (1, "nosuchhost.invalid", "rank 0", r": the host name cannot be resolved \(.+\)"),
    ],
)
def test_a_host_that_waits_for_another_says_so_and_gives_up(
    start_job: StartJob, tmp_path: Path, node: int, host: str, whom: str, reason: str
) -> None:
    """The script's own limit is half an hour, and torch is silent until then."""
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    endpoint = f"{host}:{free_port()}"
    script = 'import torch.distributed as dist; dist.init_process_group("gyre")'
    job = start_job(
        *("--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "1", "--rdzv-endpoint", endpoint),
        *("--", sys.executable, "-c", script),
        env={**os.environ, **ENVIRONMENT, "GYRE_KEY_FILE": str(key), "GYRE_START_TIMEOUT_SECONDS": str(LIMIT_SECONDS)},
        timeout=LONGEST_SECONDS,
    )
    assert job.wait() == 1
    waited = WAITED.format(node, whom, re.escape(endpoint)) + reason
    note = re.search(rf"RuntimeWarning: {waited}; it waits for up to {LIMIT_SECONDS} s", job.stderr)
    end = re.search(rf"gyre\.errors\.TimeoutError: {waited}, and gave up after {LIMIT_SECONDS} s", job.stderr)
    assert note is not None, job.stderr
    assert end is not None, job.stderr
    assert note.start() < end.start()


def test_a_key_file_that_is_not_there_is_an_error_at_once(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job(
        *("--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "localhost:29500", "--no-python", "touch", "started"),
        env={**os.environ, **ENVIRONMENT, "GYRE_KEY_FILE": "/nowhere/key"},
    )
    assert job.wait() == 1
    assert job.stderr.startswith("gyre run: GYRE_KEY_FILE '/nowhere/key': No such file or directory")
    assert not (tmp_path / "started").exists()
