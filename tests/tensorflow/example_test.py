"""examples/keras_cifar10.py trains, on one rank and on two, and refuses a folder without the data."""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "keras_cifar10.py"


def write_batches(folder: Path) -> None:
    """Images whose colour tells their class, in CIFAR-10's binary layout."""
    random = numpy.random.default_rng(1)
    for name, count in (("data_batch_1", 150), ("data_batch_2", 149), ("test_batch", 40)):
        labels = random.integers(0, 10, count).astype(numpy.uint8)
        pixels = random.integers(0, 20, (count, 3072)) + labels[:, None] * 23
        numpy.concatenate([labels[:, None], pixels.astype(numpy.uint8)], 1).tofile(folder / f"{name}.bin")


def environment() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "python"), "TF_CPP_MIN_LOG_LEVEL": "2", "PATH": os.environ["PATH"]}


def test_the_example_trains_on_two_ranks(start_job, tmp_path) -> None:
    write_batches(tmp_path)
    command = [sys.executable, str(EXAMPLE), "--data-dir", ".", "--epochs", "3", "--checkpoints", "."]
    job = start_job("-n", "2", "--", *command, env=environment(), timeout=240)
    assert job.wait() == 0, job.stderr
    found = re.search(r"test loss ([\d.]+), accuracy ([\d.]+) on 2 ranks", job.stdout)
    assert found, job.stdout
    assert float(found.group(1)) < 2.31
    assert keras.models.load_model(tmp_path / "best.keras").optimizer is not None


def test_a_folder_without_the_data_is_named(tmp_path) -> None:
    finished = subprocess.run(
        [sys.executable, str(EXAMPLE), "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert finished.returncode == 1
    assert f"{tmp_path} has no data_batch_*.bin" in finished.stderr
