"""Parameter servers survive the death of a worker, and nothing else of it: a worker that reports that its work has
failed ends the job, whatever `--consistency` says. The rows are those of docs/guide/parameter_servers.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from running_job import Job, StartJob, block_of
from safetensors.torch import load_file

from gyre.data import write_tfrecords

SIZE = 32
TRAIN = 22
WORKERS = 3
NETWORK = ("--conv-size", 2, "--fc1-size", 16, "--fc2-size", 8)
SURVIVING = ["sync:continue", "backup:1", "async", "bounded:2"]
BROKEN = 5  # The place of the damaged file, which worker 1 reads first, in step 3 of epoch 1.


@pytest.fixture(scope="module")
def cosmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cosmo")
    words = ("--out", folder, "--size", SIZE, "--train", TRAIN, "--validation", 6)
    subprocess.run([sys.executable, "-m", "gyre.datasets", "cosmo", *map(str, words)], check=True, capture_output=True)
    return folder


def train(start_job: StartJob, data: Path, output: Path, consistency: str, *options: object) -> Job:
    program = ("gyre-cosmoflow", "--data-dir", data, "--output-dir", output, *NETWORK, "--batch-size", 1, "--epochs", 3)
    words = (*program, "--consistency", consistency, "--keep-checkpoints", 100, *options)
    place = ("-n", WORKERS, "--servers", 2, "--")
    return start_job(*map(str, (*place, *words)), env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120)


def broken_file(data: Path, copy: Path) -> Path:
    shutil.copytree(data, copy)
    return sorted((copy / "train").iterdir())[BROKEN]


def check_that_it_ended(job: Job, evidence: str) -> None:
    assert job.wait() == 1, job.stdout + job.stderr
    assert re.search(evidence, job.stderr), job.stderr
    assert "go on without it" not in job.stderr
    assert "--help" not in job.stderr, "no option was wrong"
    assert block_of(job)["title"]
    assert job.processes() == []


@pytest.mark.parametrize("consistency", SURVIVING)
def test_a_loss_that_is_not_finite_on_one_worker_ends_the_job(
    start_job: StartJob, cosmo: Path, tmp_path: Path, consistency: str
) -> None:
    """The other workers trained on without that worker, and the job ended with 0."""
    broken = broken_file(cosmo, tmp_path / "data")
    volume = np.zeros((SIZE, SIZE, SIZE, 4), np.int16).tobytes()
    write_tfrecords(broken, [{"x": volume, "y": np.array([0, np.nan, 0, 0], np.float32)}])
    job = train(start_job, tmp_path / "data", tmp_path / "run", consistency, "--checkpoint-steps", 1)
    check_that_it_ended(job, r"the loss on rank 1 is not finite in step 3 of epoch 1")
    for saved in (tmp_path / "run" / "checkpoints").glob("checkpoint-*.safetensors"):
        assert all(value.isfinite().all() for value in load_file(saved).values() if value.is_floating_point()), saved


@pytest.mark.parametrize("consistency", SURVIVING)
def test_a_damaged_file_that_one_worker_reads_ends_the_job(
    start_job: StartJob, cosmo: Path, tmp_path: Path, consistency: str
) -> None:
    broken = broken_file(cosmo, tmp_path / "data")
    content = bytearray(broken.read_bytes())
    content[len(content) // 2] ^= 1
    broken.write_bytes(content)
    job = train(start_job, tmp_path / "data", tmp_path / "run", consistency)
    check_that_it_ended(job, f"{broken.name}.*damaged")


@pytest.mark.parametrize("consistency", ["async", "bounded:2"])
def test_a_worker_that_cannot_save_its_optimizer_ends_the_job(
    start_job: StartJob, cosmo: Path, tmp_path: Path, consistency: str
) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "worker-1").write_text("a file where its folder should be")
    job = train(start_job, cosmo, tmp_path / "run", consistency)
    check_that_it_ended(job, r"rank 3 of 5|rank 1.*worker-1")
