"""Hugging Face's Accelerate and Trainer and PyTorch Lightning train over Gyre as over gloo, with only the backend's
name changed, and on batches of its loader."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from metrics_file import read_metrics
from running_job import StartJob

from gyre.data import write_tfrecords

SUPPORT = Path(__file__).resolve().parent.parent / "support"
PACKAGE = SUPPORT.parent.parent / "python"
ENVIRONMENT = {
    "PYTHONPATH": str(PACKAGE),
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "OMP_NUM_THREADS": "1",
}


@pytest.mark.parametrize("script", ["accelerate_training.py", "lightning_training.py", "trainer_training.py"])
def test_the_same_weights_as_over_gloo(start_job: StartJob, tmp_path: Path, script: str) -> None:
    # One job for both, because to import all that takes longer than to train.
    command = (str(SUPPORT / script), "gyre", "gloo")
    job = start_job("--nproc-per-node", "2", "--metrics", "m", *command, env=ENVIRONMENT, timeout=240)
    assert job.wait() == 0, job.stderr
    lines = [line for line in job.stdout.splitlines() if "trained over" in line]
    assert len(lines) == 2, job.stdout
    for backend, line in zip(("gyre", "gloo"), lines, strict=True):
        assert f"over {backend}: 2 ranks" in line
    assert lines[0].split(":", 1)[1] == lines[1].split(":", 1)[1]
    if script == "lightning_training.py":  # Whose logger is ours.
        losses = read_metrics(tmp_path / "m").values("loss", 0)
        assert [step for step, _ in losses] == 2 * list(range(8))
        assert losses[:8] == losses[8:]


def test_the_loader_is_taken_where_a_dataloader_is(start_job: StartJob, tmp_path: Path) -> None:
    """Each epoch gives every sample to one of the ranks, in an order of its own, in the first epoch already. The last
    batch is filled up, and says so although Lightning and Accelerate pass on batches that they have moved."""
    samples = 22
    files = tmp_path / "few.tfrecord"
    write_tfrecords(files, [{"values": [i / samples] * 8, "label": [i % 2], "index": [i]} for i in range(samples)])
    script = str(SUPPORT / "loader_in_frameworks.py")
    job = start_job("--nproc-per-node", "2", script, str(files), env=ENVIRONMENT, timeout=240)
    assert job.wait() == 0, job.stderr
    seen = {
        (framework, int(epoch)): json.loads(ranks)
        for framework, epoch, ranks in re.findall(r"(lightning|accelerate) epoch (\d): (.*)", job.stdout)
    }
    assert len(seen) == 4, job.stdout
    for ranks in seen.values():
        assert sorted(ranks[0] + ranks[1]) == list(range(samples))
    assert seen["lightning", 0] != seen["lightning", 1]
    for epoch in range(2):
        assert seen["lightning", epoch] == seen["accelerate", epoch]


def test_a_backend_that_accelerate_does_not_know_is_answered_with_the_recipe(
    start_job: StartJob, tmp_path: Path
) -> None:
    """Accelerate's own sentence names neither the cause nor what to write."""
    script = tmp_path / "train.py"
    script.write_text(
        "from transformers import TrainingArguments\n"
        "TrainingArguments(output_dir='out', use_cpu=True, ddp_backend='gyre').device\n"
    )
    job = start_job("-n", "2", "--", sys.executable, str(script), env=ENVIRONMENT, timeout=240)
    assert job.wait() != 0
    assert 'init_process_group("gyre") before TrainingArguments' in job.stderr, job.stderr
