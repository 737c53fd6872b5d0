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
    trained = {}
    for backend in ("gyre", "gloo"):
        job = start_job("--nproc-per-node", "2", str(SUPPORT / script), backend, env=environment, timeout=120)
        assert job.wait() == 0, job.stderr
        lines = [line for line in job.stdout.splitlines() if "trained over" in line]
        assert len(lines) == 1, job.stdout
        assert f"over {backend}: 2 ranks" in lines[0]
        trained[backend] = lines[0].split(":", 1)[1]
    assert trained["gyre"] == trained["gloo"]
