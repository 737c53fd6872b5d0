"""Parameter servers as a person starts them: the same network as with allreduce, and one message when a rank dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from few_digits import IMAGES_PER_FILE
from gyre.datasets import cifar10
from running_job import Job, StartJob, block_of, wait_until

ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
LONGEST_SECONDS = 120.0


@pytest.fixture(scope="module")
def all_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    command = [sys.executable, "-m", "gyre.datasets", "digits", "--out", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def checkpoint(epochs: int) -> str:
    return f"checkpoint-{epochs * IMAGES_PER_FILE * cifar10.TRAIN_FILES:012}.safetensors"


def train(
    start_job: StartJob, data: Path, model: Path, *options: object, program: tuple[str, ...] = (), epochs: int = 1
) -> Job:
    command = ("gyre-cifar10", "--data-dir", data, "--output-dir", model, "--epochs", epochs, "--verbose", 2, *program)
    words = [*map(str, options), "--verbose", "--", *map(str, command)]
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
        states.add((model / "checkpoints" / checkpoint(1)).read_bytes())
        assert job.processes() == []
    assert len(states) == 1


@pytest.mark.parametrize(
    "consistency", ["sync:continue", "backup:1", "async", "bounded:2", "local:4", "local:4:bmuf", "local:2:nesterov"]
)
def test_every_consistency_learns(start_job: StartJob, all_digits: Path, tmp_path: Path, consistency: str) -> None:
    words = (
        "-n",
        3,
        "--servers",
        2,
        "--",
        "gyre-cifar10",
        "--data-dir",
        all_digits,
        "--output-dir",
        tmp_path / "model",
    )
    recipe = ("--lr", 0.001, "--batch-size", 16, "--epochs", 30, "--target-accuracy", 0.95, "--verbose", 2)
    job = start_job(
        *map(str, (*words, *recipe, "--consistency", consistency)), env={**os.environ, **ENVIRONMENT}, timeout=90
    )
    assert job.wait() == 0, job.stdout + job.stderr
    histogram = re.search(r"server 0: staleness of (\d+) updates: ([\d.]+) on average, at most (\d+)", job.stdout)
    assert (histogram is not None) == (consistency in ("async", "bounded:2"))
    if histogram and consistency == "bounded:2":
        # While a worker takes a step, each of the two others takes at most 2 * 2 + 1.
        assert int(histogram[3]) <= 2 * 5
    assert job.processes() == []


def test_local_steps_work_without_servers(start_job: StartJob, all_digits: Path, tmp_path: Path) -> None:
    words = ("-n", 2, "--", "gyre-cifar10", "--data-dir", all_digits, "--output-dir", tmp_path / "model")
    recipe = ("--lr", 0.001, "--epochs", 30, "--target-accuracy", 0.95, "--verbose", 2, "--consistency", "local:8")
    job = start_job(*map(str, (*words, *recipe)), env={**os.environ, **ENVIRONMENT}, timeout=90)
    assert job.wait() == 0, job.stdout + job.stderr


def test_local_steps_resume_with_the_momentum_of_their_averages(
    start_job: StartJob, data: Path, tmp_path: Path
) -> None:
    states = []
    for name, stops in (("whole", (4,)), ("resumed", (2, 4))):
        for epochs in stops:
            program = ("--consistency", "local:2:nesterov", "--lr", "0.001", "--batch-size", "8", "--resume")
            job = train(start_job, data, tmp_path / name, "-n", 1, "--servers", 1, program=program, epochs=epochs)
            assert job.wait() == 0, job.stderr
        states.append((tmp_path / name / "checkpoints" / checkpoint(4)).read_bytes())
    assert b'"outer.0.' in states[0]
    assert states[0] == states[1]


def test_each_worker_resumes_with_its_own_optimizer(start_job: StartJob, data: Path, tmp_path: Path) -> None:
    """With local steps, which are the same in each run: a job that resumes ends as one that was not interrupted."""
    states = []
    for name, stops in (("whole", (4,)), ("resumed", (2, 4))):
        for epochs in stops:
            program = ("--consistency", "local:2", "--lr", "0.001", "--batch-size", "8", "--resume")
            job = train(start_job, data, tmp_path / name, "-n", 2, "--servers", 1, program=program, epochs=epochs)
            assert job.wait() == 0, job.stderr
            assert "continues with the optimizer of worker 0" not in job.stderr
        folder = tmp_path / name / "checkpoints"
        states.append([(folder / where / checkpoint(4)).read_bytes() for where in ("", "worker-1")])
    assert states[0] == states[1]
    (tmp_path / "whole" / "checkpoints" / "worker-1" / checkpoint(4)).unlink()
    job = train(start_job, data, tmp_path / "whole", "-n", 2, "--servers", 1, program=program, epochs=5)
    assert job.wait() == 0, job.stderr
    assert "worker 1 continues with the optimizer of worker 0" in job.stderr


def test_a_checkpoint_of_other_training_starts_the_momentum_of_averages_anew(
    start_job: StartJob, data: Path, tmp_path: Path
) -> None:
    assert train(start_job, data, tmp_path / "model", "-n", 2).wait() == 0
    program = ("--consistency", "local:2:bmuf", "--resume")
    refused = train(start_job, data, tmp_path / "model", "-n", 2, program=program, epochs=2)
    assert refused.wait() == 1
    assert "--consistency was sync and is local:2:bmuf now" in refused.stderr
    program = ("--consistency", "local:2:bmuf", "--resume-changed")
    job = train(start_job, data, tmp_path / "model", "-n", 2, program=program, epochs=2)
    assert job.wait() == 0, job.stderr
    assert "continues although --consistency was sync and is local:2:bmuf now" in job.stderr
    assert "the checkpoint has no momentum of the workers' averages; it begins at zero" in job.stderr
    program = ("--consistency", "sync", "--resume-changed")
    back = train(start_job, data, tmp_path / "model", "-n", 2, program=program, epochs=3)
    assert back.wait() == 0, back.stderr
    assert "of the checkpoint's tensors are left out, because this run does not use them: outer." in back.stderr


def test_one_worker_alone_takes_the_outer_optimizers_steps_too(start_job: StartJob, data: Path, tmp_path: Path) -> None:
    """Without servers there is nobody to exchange with, and its momentum was left out: from the checkpoints as well."""
    states = []
    for servers in (0, 1):
        folder = tmp_path / f"servers-{servers}"
        program = ("--consistency", "local:2:nesterov", "--lr", "0.001", "--batch-size", "8")
        job = train(start_job, data, folder, "-n", 1, "--servers", servers, program=program)
        assert job.wait() == 0, job.stderr
        states.append((folder / "checkpoints" / checkpoint(1)).read_bytes())
    assert b'"outer.0.' in states[0]
    assert states[0] == states[1]


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4)])
def test_another_number_of_workers_with_optimizers_of_their_own_is_refused(
    start_job: StartJob, data: Path, tmp_path: Path, before: int, after: int
) -> None:
    program = ("--consistency", "local:8:nesterov", "--batch-size", str(40 // before))
    assert train(start_job, data, tmp_path / "model", "-n", before, program=program).wait() == 0
    program = ("--consistency", "local:8:nesterov", "--batch-size", str(40 // after))
    refused = train(start_job, data, tmp_path / "model", "-n", after, program=(*program, "--resume"), epochs=2)
    assert refused.wait() == 1
    assert f"the number of workers was {before} and is {after} now" in refused.stderr
    accepted = train(start_job, data, tmp_path / "model", "-n", after, program=(*program, "--resume-changed"), epochs=2)
    assert accepted.wait() == 0, accepted.stderr
    assert "new workers begin with rank 0's" in accepted.stderr
    assert "momentum" not in accepted.stderr, "the outer optimizer goes on with its own"
    newest = (tmp_path / "model" / "checkpoints" / checkpoint(2)).read_bytes()
    assert b'"outer.0.' in newest


SURVIVED = ["sync:continue", "backup:1", "async", "bounded:3"]


def trained_images(output: str, epoch: int) -> list[int]:
    """As --print-samples says them, on all workers."""
    lines = re.findall(rf"samples epoch {epoch} step \d+ rank \d+: ([\d ]+)", output)
    return sorted(int(number) for line in lines for number in line.split())


@pytest.mark.parametrize("saves", [0, 2])
@pytest.mark.parametrize("consistency", SURVIVED)
def test_the_others_take_over_the_images_of_a_killed_worker_and_count_what_was_trained(
    start_job: StartJob, data: Path, tmp_path: Path, consistency: str, saves: int
) -> None:
    """At the end of the epoch, or before the next checkpoint within it."""
    images = IMAGES_PER_FILE * cifar10.TRAIN_FILES
    options = ("--consistency", consistency, "--print-samples", "--batch-size", "8", "--checkpoint-steps", str(saves))
    job = train(start_job, data, tmp_path / "model", "-n", 3, "--servers", 2, program=options, epochs=5)
    pids = job.rank_pids(5)
    wait_until("the training runs", lambda: "epoch 1/5" in job.stdout)
    os.kill(pids[2], signal.SIGKILL)
    assert job.wait() == 0, job.stdout + job.stderr
    assert "rank 2 of 5 ended with SIGKILL (signal 9); the others go on without it" in job.stderr
    assert "epoch 5/5" in job.stdout
    assert job.processes() == []
    said = re.findall(
        r"worker 2 has died: (\d+) of the (\d+) images of epoch (\d+) since position (\d+) are not counted",
        job.stderr,
    )
    assert len(said) == 1, job.stderr
    missing, passed, epoch, since = map(int, said[0])
    assert "the other 2 share all images" in job.stderr
    assert 0 <= missing < passed
    assert passed + since <= images
    assert saves == 0 or passed <= 2 * 3 * 8, "it is noticed before the next checkpoint"
    assert trained_images(job.stdout, 5) == list(range(images)), f"died in epoch {epoch}"
    newest = max((tmp_path / "model" / "checkpoints").glob("checkpoint-*.safetensors"))
    assert int(newest.stem.rpartition("-")[2]) == 5 * images - missing


@pytest.mark.parametrize("consistency", SURVIVED)
def test_the_death_of_worker_0_which_evaluates_and_saves_ends_the_job(
    start_job: StartJob, data: Path, tmp_path: Path, consistency: str
) -> None:
    """It ended with 0 when the others had trained on for nothing."""
    options = ("--consistency", consistency)
    job = train(start_job, data, tmp_path / "model", "-n", 3, "--servers", 2, program=options, epochs=1000)
    pids = job.rank_pids(5)
    wait_until("the training runs", lambda: "epoch 1/1000" in job.stdout)
    os.kill(pids[0], signal.SIGKILL)
    assert job.wait() == 128 + signal.SIGKILL
    assert "rank 0" in block_of(job)["title"]
    assert "go on without it" not in job.stderr
    assert job.processes() == []


def test_when_all_workers_are_killed_the_servers_end(start_job: StartJob, data: Path, tmp_path: Path) -> None:
    job = train(
        start_job, data, tmp_path / "model", "-n", 2, "--servers", 1, program=("--consistency", "async"), epochs=1000
    )
    pids = job.rank_pids(3)
    wait_until("the training runs", lambda: "epoch 1/1000" in job.stdout)
    for rank in (1, 0):
        os.kill(pids[rank], signal.SIGKILL)
    assert job.wait() == 128 + signal.SIGKILL
    assert job.processes() == []


@pytest.mark.parametrize(
    ("consistency", "message"),
    [
        ("asynch", "--consistency: 'asynch' is none of: sync, sync:continue, backup:N, async"),
        ("async", "needs parameter servers: start the job with `gyre run --servers N`"),
    ],
)
def test_a_consistency_that_cannot_be_gets_one_sentence(
    start_job: StartJob, tmp_path: Path, consistency: str, message: str
) -> None:
    program = ("gyre-cifar10", "--data-dir", str(tmp_path), "--consistency", consistency)
    job = start_job("-n", "1", "--", *program, timeout=LONGEST_SECONDS)
    assert job.wait() != 0
    assert message in job.stderr


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
        (("--servers", "1", "--server-hosts", "a"), "--server-hosts is for a job over several hosts (-H)"),
        (("-H", "localhost:2", "--server-hosts", "a"), "--server-hosts needs --servers, their number"),
        (("-H", "a:2", "--servers", "1", "--server-hosts", "b:2"), "'b:2': these hosts have no slots"),
        (("-H", "a:2", "--servers", "1", "--server-hosts", "b c"), "'b c' is not the name of a host"),
        (("-H", "a:2", "--servers", "1", "--server-hosts", ""), "--server-hosts: an empty value was given"),
        (("-H", "localhost:4096", "--servers", "1"), "host localhost would run more than 4096 ranks"),
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
