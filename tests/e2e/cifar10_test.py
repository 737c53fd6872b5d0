"""gyre-cifar10 as a person runs it: data, training, checkpoints, curves, and what happens when something is wrong."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from few_digits import IMAGES_PER_FILE
from gyre.datasets import cifar10
from running_job import StartJob, block_of

IMAGES = IMAGES_PER_FILE * cifar10.TRAIN_FILES  # Of an epoch.


def program() -> str:
    path = shutil.which("gyre-cifar10")
    assert path, "gyre-cifar10 is not on PATH: run ./dev build, or put build/release/bin there"
    return path


def train(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [program(), *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        command, capture_output=True, text=True, timeout=240, check=False, env=environment, **options
    )


def checkpoint(folder: Path, epoch: int) -> Path:
    return folder / "checkpoints" / f"checkpoint-{epoch * IMAGES:012}.safetensors"


def test_the_sample_jobs_flags_train_and_leave_checkpoints_and_curves(data: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 - slow to import

    model = tmp_path / "model"
    result = train("--data-dir", data, "--output-dir", model, "--batch-size", 64, "--epochs", 3, "--verbose", 1)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if "test accuracy" in line]
    assert len(lines) == 3
    assert re.search(r"\d images/s  \d+\.\d\d steps/s", lines[0])
    assert "\x1b" not in result.stdout
    assert f"checkpoints go to {model}/checkpoints, curves for TensorBoard to {model}/tensorboard\n" in result.stdout
    assert checkpoint(model, 3).is_file()

    events = EventAccumulator(str(model / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {
        "train/loss",
        "train/accuracy",
        "train/images_per_second",
        "train/steps_per_second",
        "train/learning_rate",
        "train/waited_for_data_seconds",
        "test/loss",
        "test/accuracy",
    }
    losses = events.Scalars("train/loss")
    assert [event.step for event in losses] == [1, 2, 3]
    assert f"loss {losses[0].value:.4f}" in lines[0]
    assert events.Scalars("train/learning_rate")[0].value == pytest.approx(1e-4)


def test_all_layouts_train_the_same_network(data: Path, tmp_path: Path) -> None:
    shutil.move(data / "cifar-10-batches-bin", tmp_path / "binary")
    shutil.move(data / "cifar-10-batches-py", tmp_path / "python2")
    (tmp_path / "python3").mkdir()
    for path in (tmp_path / "python2").glob("*batch*"):
        with path.open("rb") as file:
            content = pickle.load(file, encoding="latin1")
        with (tmp_path / "python3" / path.name).open("wb") as file:
            pickle.dump(content, file, protocol=2)
    states = set()
    for layout in ("binary", "python2", "python3"):
        model = tmp_path / f"model-{layout}"
        result = train("--data-dir", tmp_path / layout, "--output-dir", model, "--epochs", 1, "--verbose", 0)
        assert result.returncode == 0, result.stderr
        assert result.stdout == ""
        # The tensors: checkpoints of other files say that they are other files.
        states.add(hashlib.sha256(tensors_of(checkpoint(model, 1))).digest())
    assert len(states) == 1


def tensors_of(path: Path) -> bytes:
    content = path.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little") :]


def kill_in_epoch_3(flags: list[str]) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen([program(), *flags], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 2/4"):
                process.send_signal(signal.SIGKILL)
                break


def test_killed_and_resumed_ends_with_the_same_checkpoint_as_never_killed(data: Path, tmp_path: Path) -> None:
    flags = ["--data-dir", data, "--epochs", 4, "--verbose", 2, "--augment", "flip", "--augment", "shift"]
    for _ in range(10):
        kill_in_epoch_3([*map(str, flags), "--output-dir", str(tmp_path / "killed")])
        if not checkpoint(tmp_path / "killed", 4).exists():
            break
        shutil.rmtree(tmp_path / "killed")  # We were kept waiting, and it was quicker.
    assert checkpoint(tmp_path / "killed", 1).exists()
    resumed = train(*flags, "--output-dir", tmp_path / "killed", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed after epoch" in resumed.stdout
    straight = train(*flags, "--output-dir", tmp_path / "straight")
    assert straight.returncode == 0, straight.stderr
    assert checkpoint(tmp_path / "killed", 4).read_bytes() == checkpoint(tmp_path / "straight", 4).read_bytes()


def test_a_disk_that_fills_up_leaves_the_previous_checkpoint(data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    flags = ["--data-dir", data, "--output-dir", model, "--verbose", 0]
    assert train(*flags, "--epochs", 1).returncode == 0
    before = checkpoint(model, 1).read_bytes()

    def no_large_files() -> None:
        # Stands for the full disk: the write fails half way through the 10 MB of a checkpoint.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = train(*flags, "--epochs", 2, "--resume", preexec_fn=no_large_files, restore_signals=False)
    assert result.returncode == 1
    assert f"the checkpoint after {2 * IMAGES} samples could not be saved" in result.stderr
    assert f"{checkpoint(model, 1)} is intact" in result.stderr
    assert list((model / "checkpoints").iterdir()) == [checkpoint(model, 1)]
    assert checkpoint(model, 1).read_bytes() == before


def test_wrong_input_is_one_clear_message(data: Path, tmp_path: Path) -> None:
    missing = train("--data-dir", tmp_path / "nowhere", "--output-dir", tmp_path / "model")
    assert missing.returncode == 1
    assert missing.stderr.splitlines() == [
        f"gyre-cifar10: the data folder {tmp_path / 'nowhere'} does not exist; `python -m gyre.datasets digits "
        "--out FOLDER` writes one"
    ]

    path = data / "cifar-10-batches-bin" / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    damaged = train("--data-dir", data, "--output-dir", tmp_path / "model")
    assert damaged.returncode == 1
    assert "data_batch_2.bin" in damaged.stderr
    assert len(damaged.stderr.splitlines()) == 1

    assert train("--data-dir", data, "--epochs", "many").returncode == 2
    assert train().returncode == 2
    for rate in ("nan", "inf", "-1", "0.0", "fast"):
        wrong = train("--data-dir", data, "--lr", rate)
        assert wrong.returncode == 2
        assert len(wrong.stderr.splitlines()[0]) < 100
    for share in ("-1", "2", "nan"):
        wrong = train("--data-dir", data, "--target-accuracy", share)
        assert wrong.returncode == 2
        assert wrong.stderr.startswith(f"gyre-cifar10: --target-accuracy: '{share}' is not a number from 0 to 1\n")
    played = train("--data-dir", data, "--play-ranks", 2, "--compat", "smarker")
    assert played.returncode == 2
    assert "--play-ranks divides the images among ranks; --compat smarker does not" in played.stderr
    mistyped = train("--data-dri", data)
    assert mistyped.returncode == 2
    assert mistyped.stderr.startswith("gyre-cifar10: unknown option --data-dri; did you mean --data-dir?\n")
    extra = train("--data-dir", data, "5")
    assert extra.returncode == 2
    assert extra.stderr.startswith("gyre-cifar10: unexpected argument '5'\n")
    assert train("--help").returncode == 0


def test_a_target_that_is_not_reached_is_an_exit_code(data: Path, tmp_path: Path) -> None:
    result = train(
        "--data-dir", data, "--output-dir", tmp_path / "model", "--epochs", 1, "--lr", 1e-9, "--target-accuracy", 1.0
    )
    assert result.returncode == 3
    assert "the target 1 is not reached" in result.stdout


def test_a_missed_target_is_rank_0s_to_report(start_job: StartJob, data: Path, tmp_path: Path) -> None:
    # Every rank ended with 3, and whichever was quickest was said to have failed first, and to have written nothing.
    flags = ["--epochs", "1", "--lr", "1e-9", "--target-accuracy", "1", "--verbose", "0"]
    job = start_job("-n", "2", program(), "--data-dir", str(data), "--output-dir", str(tmp_path / "model"), *flags)
    assert job.wait() == 3
    assert "rank 0 of 2 failed first" in block_of(job)["title"]
    assert "    | gyre-cifar10: test loss " in job.stderr
    assert "the target 1 is not reached" in job.stderr


def test_hashes_of_every_step_repeat(data: Path, tmp_path: Path) -> None:
    runs = [
        train("--data-dir", data, "--output-dir", tmp_path / name, "--epochs", 1, "--verbose", 0, "--print-hashes")
        for name in ("first", "second")
    ]
    assert runs[0].returncode == 0, runs[0].stderr
    steps = -(-IMAGES // 32)
    assert len(runs[0].stdout.splitlines()) == steps
    assert runs[0].stdout == runs[1].stdout


def test_a_checkpoint_is_read_from_python(data: Path, tmp_path: Path) -> None:
    """With the library that everybody has for such files, and none of ours."""
    from safetensors import safe_open  # noqa: PLC0415 - slow to import

    model = tmp_path / "model"
    assert train("--data-dir", data, "--output-dir", model, "--epochs", 2, "--batch-size", 32).returncode == 0
    with safe_open(checkpoint(model, 2), "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dictionary
    assert (metadata["epoch"], metadata["format"], metadata["--batch-size"]) == ("2", "pt", "32")
    assert int(metadata["step"]) > 0
    assert re.fullmatch("xxh3:[0-9a-f]{16}", metadata["checksum"])
    assert tensors["conv1.weight"].shape == (32, 3, 3, 3), sorted(tensors)
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_it_learns_from_a_folder_of_images_of_another_size_and_number_of_classes(tmp_path: Path) -> None:
    """Satellite images, the first article's, are neither 32 pixels wide nor of 10 classes."""
    make = ["python", "-m", "gyre.datasets", "imagenet", "--out", tmp_path / "images", "--layout", "folder"]
    size = ["--size", "40", "--classes", "4", "--train", "192", "--validation", "48"]
    subprocess.run([*make, *size], check=True, capture_output=True)
    places = ("--data-dir", tmp_path / "images", "--output-dir", tmp_path / "model")
    recipe = ("--image-size", 24, "--lr", 0.001, "--epochs", 20, "--target-accuracy", 0.8, "--augment", "flip")
    result = train(*places, *recipe, "--verbose", 2)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "192 training images, 48 validation images, 4 classes" in result.stdout
    # The first weights of dense1 are 64 channels of 4 x 4: 24 - 2 = 22, 11, 9, 4.
    newest = max((tmp_path / "model" / "checkpoints").iterdir())
    scored = subprocess.run(
        ["gyre", "score", "--model", newest, "--data", tmp_path / "images" / "validation"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert scored.returncode == 0, scored.stderr
    accuracy = re.findall(r"test accuracy ([0-9.]+)", result.stdout)[-1]
    assert f"accuracy {accuracy}" in scored.stdout


def test_labels_beyond_the_classes_and_folders_without_images_are_one_sentence(tmp_path: Path) -> None:
    make = ["python", "-m", "gyre.datasets", "imagenet", "--out", tmp_path / "images"]
    size = ["--size", "40", "--classes", "4", "--train", "32", "--validation", "8"]
    subprocess.run([*make, *size], check=True, capture_output=True)
    few = train("--data-dir", tmp_path / "images", "--output-dir", tmp_path / "model", "--classes", 2)
    assert few.returncode == 1
    assert re.search(r"a sample has the label [23], and the network has 2 classes", few.stderr)
    (tmp_path / "empty").mkdir()
    empty = train("--data-dir", tmp_path / "empty", "--output-dir", tmp_path / "model")
    assert empty.returncode == 1
    assert "nor a folder train nor files train-*" in empty.stderr
    assert "python -m gyre.datasets digits --out" in empty.stderr
    assert len(empty.stderr.splitlines()) == 1
