"""Hugging Face Accelerate and PyTorch Lightning train over Gyre as over gloo, with only the backend's name changed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from running_job import StartJob

SUPPORT = Path(__file__).resolve().parent.parent / "support"
PACKAGE = SUPPORT.parent.parent / "python"


@pytest.mark.parametrize("script", ["accelerate_training.py", "lightning_training.py"])
def test_the_same_weights_as_over_gloo(start_job: StartJob, script: str) -> None:
    environment = {
        "PYTHONPATH": str(PACKAGE),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    # One job for both, because to import all that takes longer than to train.
    job = start_job("--nproc-per-node", "2", str(SUPPORT / script), "gyre", "gloo", env=environment, timeout=240)
    assert job.wait() == 0, job.stderr
    lines = [line for line in job.stdout.splitlines() if "trained over" in line]
    assert len(lines) == 2, job.stdout
    for backend, line in zip(("gyre", "gloo"), lines, strict=True):
        assert f"over {backend}: 2 ranks" in line
    assert lines[0].split(":", 1)[1] == lines[1].split(":", 1)[1]
