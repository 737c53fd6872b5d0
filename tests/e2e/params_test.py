"""Parameter servers as a person starts them: the same network as with allreduce, and one message when a rank dies."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from running_job import Job, StartJob, block_of, wait_until

ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
LONGEST_SECONDS = 120.0


def train(start_job: StartJob, data: Path, model: Path, *options: object, epochs: int = 1) -> Job:
    program = ("gyre-cifar10", "--data-dir", data, "--model-dir", model, "--epochs", epochs, "--verbose", 2)
    words = [*map(str, options), "--verbose", "--", *map(str, program)]
    return start_job(*words, env={**os.environ, **ENVIRONMENT}, timeout=LONGEST_SECONDS)


def test_servers_train_the_same_network_as_allreduce_whatever_their_number(
    start_job: StartJob, data: Path, tmp_path: Path
) -> None:
    states = set()
    for servers in (0, 1, 2):
        model = tmp_path / f"model-{servers}"
        job = train(start_job, data, model, "-n", 2, "--servers", servers)
        assert job.wait() == 0, job.stderr
        assert "2 ranks x batch 32" in job.stdout
        states.add((model / "checkpoints" / "checkpoint-00000001.safetensors").read_bytes())
        assert job.processes() == []
    assert len(states) == 1


@pytest.mark.parametrize("rank", [1, 2])
def test_a_killed_worker_or_server_ends_the_job_with_one_report(
    start_job: StartJob, data: Path, tmp_path: Path, rank: int
) -> None:
    job = train(start_job, data, tmp_path / "model", "--workers", 2, "--servers", 1, epochs=1000)
    pids = job.rank_pids(3)
    wait_until("the training runs", lambda: "epoch 1/1000" in job.stdout)
    os.kill(pids[rank], signal.SIGKILL)
    assert job.wait() == 128 + signal.SIGKILL
    assert f"rank {rank}" in block_of(job)["title"]
    assert job.processes() == []


def test_a_program_that_does_not_use_the_servers_is_told_so(start_job: StartJob) -> None:
    script = "import gyre.torch as hvd; hvd.init()"
    job = start_job("-n", "1", "--servers", "1", "--", sys.executable, "-c", script, timeout=LONGEST_SECONDS)
    assert job.wait() == 1
    assert re.search(r"this job has parameter servers .* start it without --servers", job.stderr)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--servers", "-1"), "--servers is '-1'"),
        (("--servers", "1", "-H", "localhost:2"), "cannot be combined with -H"),
        (("--servers", "1", "--timeline", "trace.json"), "a job with --servers has none"),
        (("--servers", "1", "--nproc-per-node", "2"), "--servers is not for torchrun's options"),
    ],
)
def test_options_that_make_no_sense_get_one_sentence(
    start_job: StartJob, options: tuple[str, ...], message: str
) -> None:
    job = start_job(*options, "--", "true", timeout=LONGEST_SECONDS)
    assert job.wait() == 2
    assert message in job.stderr


def test_a_server_without_a_job_says_how_it_is_started(start_job: StartJob) -> None:
    job = start_job("-n", "1", "--", "gyre", "parameter-server", timeout=LONGEST_SECONDS)
    assert job.wait() == 2
    assert "`gyre run --servers N -- COMMAND` starts them" in job.stderr
