"""The digits stand in for CIFAR-10 in every demo and test: their files must be what CIFAR-10's readers expect."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyre import datasets
from gyre.datasets import cifar10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits")
    assert datasets.main(["digits", "--out", str(path)]) == 0
    return path


def load_python_batch(path: Path, encoding: str) -> dict[str | bytes, Any]:
    with path.open("rb") as file:
        batch: dict[str | bytes, Any] = pickle.load(file, encoding=encoding)
        return batch


def test_both_layouts_hold_the_same_images(folder: Path) -> None:
    total = 0
    for name in [f"data_batch_{part}" for part in range(1, 6)] + ["test_batch"]:
        raw = (folder / "cifar-10-batches-bin" / f"{name}.bin").read_bytes()
        records = np.frombuffer(raw, dtype=np.uint8).reshape(-1, 3073)
        batch = load_python_batch(folder / "cifar-10-batches-py" / name, "latin1")
        assert np.array_equal(records[:, 1:], batch["data"])
        assert records[:, 0].tolist() == batch["labels"]
        total += len(records)
    assert total == 1797


def test_python_files_load_like_the_originals(folder: Path) -> None:
    path = folder / "cifar-10-batches-py" / "data_batch_1"
    assert set(load_python_batch(path, "bytes")) == {b"batch_label", b"labels", b"data", b"filenames"}
    batch = load_python_batch(path, "latin1")
    assert batch["batch_label"] == "training batch 1 of 5"
    assert len(batch["filenames"]) == 300
    meta = load_python_batch(folder / "cifar-10-batches-py" / "batches.meta", "latin1")
    assert meta["label_names"] == [str(digit) for digit in range(10)]
    assert meta["num_vis"] == 3072


def test_the_split_is_stratified_and_complete() -> None:
    dataset = datasets.digits()
    assert len(dataset.train_images) == 1500
    assert len(dataset.test_images) == 297
    counts = np.bincount(dataset.test_labels, minlength=10)
    assert counts.min() >= 28
    assert counts.max() <= 31


def test_enlarged_digits_still_show_the_digit() -> None:
    # Linear interpolation between pixel centres keeps ramps as ramps and the amount of ink away from the edges.
    small = np.zeros((1, 8, 8))
    small[0, 2:6, 3] = 1.0
    large = cifar10.as_cifar10_images(small).reshape(3, 32, 32)
    assert np.array_equal(large[0], large[1])
    assert np.array_equal(large[0], large[2])
    assert large[0].sum() / 255 / 16 == pytest.approx(small.sum(), rel=0.01)
    assert large[0, 16, 10:18].tolist() == [32, 96, 159, 223, 223, 159, 96, 32]


def test_the_files_are_the_same_on_every_machine(folder: Path) -> None:
    # Accuracy figures are only comparable on equal data.
    digest = hashlib.sha256()
    for path in sorted((folder / "cifar-10-batches-bin").iterdir()):
        digest.update(path.read_bytes())
    assert digest.hexdigest() == "50be67e5d10bf7a5833fed757d767964ab8f92ce55c5770b51d118d43b702a4a"


def test_a_second_run_writes_nothing_and_a_damaged_file_is_mended(folder: Path) -> None:
    dataset = datasets.digits()
    assert cifar10.write_dataset(dataset, folder) == 0
    victim = folder / "cifar-10-batches-py" / "data_batch_3"
    good = victim.read_bytes()
    victim.write_bytes(good[:1000])
    assert cifar10.write_dataset(dataset, folder) == 1
    assert victim.read_bytes() == good
    assert not list(folder.rglob("*.tmp"))


def test_a_folder_that_cannot_be_written_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    result = subprocess.run(
        [sys.executable, "-m", "gyre.datasets", "digits", "--out", str(tmp_path / "file" / "digits")],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(datasets.__file__).parents[2])},
    )
    assert result.returncode == 1
    assert "cannot write the data set to" in result.stderr
    assert "Traceback" not in result.stderr
