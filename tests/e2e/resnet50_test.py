"""gyre-resnet50 as a person runs it: the network that PyTorch computes too, learning on several ranks, a run that goes
on within an epoch, and the lines that other people's scripts read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from gyre.core import _core
from safetensors.torch import load_file
from torch import nn

from gyre.data import Loader, image, ints

PROGRAM = "gyre-resnet50"
SIZE = 32
TINY = ("--depth", 14, "--image-size", SIZE, "--verbose", 2)
SMALL = (*TINY, "--classes", 4)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images as TFRecord files and as an image folder."""
    folder = tmp_path_factory.mktemp("imagenet")
    for layout in ("tfrecord", "folder"):
        make = ["python", "-m", "gyre.datasets", "imagenet", "--out", folder / layout, "--layout", layout]
        size = ["--size", "48", "--classes", "4", "--train", "96", "--validation", "32"]
        subprocess.run([*make, *size], check=True, capture_output=True)
    return folder


def train(ranks: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    program = shutil.which(PROGRAM)
    assert program, f"{PROGRAM} is not on PATH: run ./dev build, or put build/release/bin there"
    launcher = ["gyre", "run", "-n", str(ranks), "--"] if ranks > 1 else []
    command = [*launcher, program, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)


def checkpoint(folder: Path, samples: int) -> Path:
    return folder / "checkpoints" / f"checkpoint-{samples:012}.safetensors"


def of_run(output: str, name: str) -> list[float]:
    return [float(value) for value in re.findall(rf"(?:^| ){name} ([0-9.]+)", output, re.MULTILINE)]


class Block(nn.Module):
    def __init__(self, channels: int, width: int, stride: int, version: str) -> None:
        super().__init__()
        strides = (stride, 1) if version == "v1" else (1, stride)
        self.conv1 = nn.Conv2d(channels, width, 1, strides[0], bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, strides[1], 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = nn.Sequential(
            nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        x = self.bn1(self.conv1(inputs)).relu()
        x = self.bn3(self.conv3(self.bn2(self.conv2(x)).relu()))
        result: torch.Tensor = (x + self.downsample(inputs)).relu()
        return result


class Twin(nn.Module):
    """ResNet-14 in PyTorch's own layers, with torchvision's names."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for stage, width in enumerate((64, 128, 256, 512)):
            block = Block(channels, width, 1 if stage == 0 else 2, version)
            setattr(self, f"layer{stage + 1}", nn.Sequential(block))
            channels = 4 * width
        self.fc = nn.Linear(channels, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.bn1(self.conv1(images)).relu(), 3, 2, 1)
        for stage in range(4):
            x = getattr(self, f"layer{stage + 1}")(x)
        logits: torch.Tensor = self.fc(x.mean((2, 3)))
        return logits


@pytest.mark.parametrize("version", ["v1", "v1.5"])
def test_one_step_is_the_step_that_pytorch_computes(data: Path, tmp_path: Path, version: str) -> None:
    """Forward, backward, Goyal's weight decay and label smoothing, and the running statistics, against layers and
    gradients that are not ours."""
    shared = ("--data-dir", data / "tfrecord", *SMALL, "--resnet-version", version, "--batch-size", 96, "--epochs", 1)
    shared += ("--warmup-epochs", 0, "--label-smoothing", 0.1)
    first = train(1, *shared, "--lr", 0, "--output-dir", tmp_path / "first")
    assert first.returncode == 0, first.stderr
    stepped = train(1, *shared, "--lr", 0.8, "--weight-decay", 0.01, "--output-dir", tmp_path / "stepped")
    before, after = (load_file(checkpoint(tmp_path / run, 96)) for run in ("first", "stepped"))
    twin = Twin(version)
    fresh = {name: value for name, value in before.items() if "velocity" not in name and "running" not in name}
    missing = twin.load_state_dict(fresh, strict=False)
    assert not missing.unexpected_keys
    loader = Loader(
        str(data / "tfrecord" / "train-*"),
        {
            "image": image(SIZE, augment=True, key="image/encoded"),
            "label": ints(key="image/class/label", offset=-1),
        },
        batch_size=96,
        seed=1,
    )
    batch = next(iter(loader))
    logits = twin(torch.as_tensor(batch["image"]))
    labels = torch.as_tensor(batch["label"])
    loss = nn.functional.cross_entropy(logits, labels, label_smoothing=0.1)
    loss.backward()
    assert of_run(stepped.stdout, "loss")[0] == pytest.approx(loss.item(), abs=2e-4)
    assert of_run(first.stdout, "accuracy")[0] == pytest.approx(
        (logits.argmax(1) == labels).float().mean().item(), abs=0.02
    )
    rate = 0.8 * 96 / 256
    for name, parameter in twin.named_parameters():
        assert parameter.grad is not None
        decay = 0.01 if parameter.dim() > 1 or name.startswith("fc") else 0.0
        # Nesterov's first step: the gradient, and the velocity that it has become, times the momentum.
        expected = parameter.detach() - rate * 1.9 * (parameter.grad + decay * parameter.detach())
        torch.testing.assert_close(after[name], expected, rtol=1e-3, atol=1e-5)
    for name, buffer in twin.named_buffers():
        if "running" in name:
            torch.testing.assert_close(after[name], buffer, rtol=1e-3, atol=1e-5)


def test_it_learns_on_two_ranks_from_an_image_folder(data: Path, tmp_path: Path) -> None:
    result = train(
        2, "--data-dir", data / "folder", *SMALL, "--batch-size", 8, "--epochs", 6, "--lr", 0.8, "--warmup-epochs", 1,
        "--decay-epochs", "4", "--output-dir", tmp_path / "model", "--target-accuracy", 0.6,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "32 validation images, 4 classes" in result.stdout
    assert "the target 0.6 is reached" in result.stdout


def test_resumed_within_an_epoch_it_ends_with_the_same_weights_and_statistics(data: Path, tmp_path: Path) -> None:
    """Batch normalisation's statistics are each rank's own, and only rank 0's are kept."""
    shared = ("--data-dir", data / "tfrecord", *SMALL, "--batch-size", 12, "--checkpoint-steps", 3)
    whole = train(2, *shared, "--output-dir", tmp_path / "whole", "--epochs", 2)
    assert whole.returncode == 0, whole.stderr
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    checkpoint(tmp_path / "cut", 192).unlink()
    resumed = train(2, *shared, "--output-dir", tmp_path / "cut", "--epochs", 2, "--resume")
    assert "resumed after epoch 1, step 7, samples 168" in resumed.stdout
    left, right = (load_file(checkpoint(tmp_path / run, 192)) for run in ("whole", "cut"))
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(
    ("lines", "patterns"),
    [
        ("horovod", [r"Iter #1: [0-9.]+ img/sec per CPU", r"Total img/sec on 2 CPU\(s\): [0-9.]+ \+-[0-9.]+"]),
        (
            "tf_cnn_benchmarks",
            [r"4\timages/sec: [0-9.]+ \+/- [0-9.]+ \(jitter = [0-9.]+\)\t[0-9.]+", r"total images/sec: [0-9.]+"],
        ),
    ],
)
def test_the_synthetic_benchmark_speaks_as_others_do(lines: str, patterns: list[str]) -> None:
    """Scripts that read these lines exist."""
    quick = ("--num-warmup-batches", 1, "--num-batches-per-iter", 2, "--num-iters", 2)
    result = train(2, "--synthetic", *SMALL, "--batch-size", 2, *quick, "--lines", lines)
    assert result.returncode == 0, result.stderr
    for pattern in patterns:
        assert re.search(rf"^\[0\] {pattern}$", result.stdout, re.MULTILINE), result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--bach-size", 4], 2, "did you mean --batch-size?"),
        ([], 2, "--data-dir"),
        (["--data-dir", "x", "--depth", 34], 2, "34"),
        (["--data-dir", "x", "--decay-epochs", "9,3"], 2, "ascend"),
        (["--data-dir", "/nowhere"], 1, "/nowhere"),
        (["--synthetic", *SMALL, "--batch-size", 1], 2, "leaves batch normalisation one value per channel"),
    ],
)
def test_mistakes_get_one_sentence(arguments: list[object], code: int, message: str) -> None:
    result = train(1, *arguments)
    assert result.returncode == code
    assert message in result.stderr


def test_what_the_classes_make_meaningless_is_refused(data: Path, tmp_path: Path) -> None:
    """The right one of four classes is always among the best five. Folders say how many classes there are."""
    run = ("--output-dir", tmp_path / "model", *TINY, "--epochs", 1)
    best = train(1, "--data-dir", data / "tfrecord", *run, "--classes", 4, "--keep-best", "top5")
    assert best.returncode == 1
    assert "with 4 classes the right one is always among the best 5; choose accuracy or loss" in best.stderr
    others = train(1, "--data-dir", data / "folder", *run, "--classes", 7)
    assert others.returncode == 1
    assert "--classes is 7, and the data in" in others.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_classes_without_a_training_image_are_told_once(data: Path, tmp_path: Path, ranks: int) -> None:
    """TFRecord files have numbers alone: a network with more classes than these trained without a word."""
    shared = ("--data-dir", data / "tfrecord", *TINY, "--batch-size", 16, "--warmup-epochs", 0)
    large = train(ranks, *shared, "--classes", 10, "--epochs", 2, "--output-dir", tmp_path / "large")
    assert large.returncode == 0, large.stderr
    said = "the training images have none of class 4 to 9 (6 of the network's 10 classes): is --classes right?"
    assert large.stderr.count(said) == 1, large.stderr
    right = train(ranks, *shared, "--classes", 4, "--epochs", 1, "--output-dir", tmp_path / "right")
    assert "--classes" not in right.stderr + right.stdout


def test_a_label_without_a_class_is_named(data: Path, tmp_path: Path) -> None:
    result = train(
        1, "--data-dir", data / "tfrecord", *TINY, "--classes", 3, "--epochs", 1, "--output-dir", tmp_path / "model"
    )
    assert result.returncode == 1
    assert "label 3, and the network has 3 classes" in result.stderr


if os.environ.get("GYRE_TEST_LONG"):  # ./dev test --long: two minutes on two idle cores.

    def test_resnet50_tells_ten_classes_apart_within_twenty_minutes(tmp_path: Path) -> None:
        folder = tmp_path / "imagenet"
        size = ("--size", "64", "--train", "4096", "--validation", "512")
        subprocess.run(["python", "-m", "gyre.datasets", "imagenet", "--out", folder, *size], check=True)
        program = str(shutil.which(PROGRAM))
        places = (
            program,
            "--data-dir",
            folder,
            "--output-dir",
            tmp_path / "model",
            "--image-size",
            64,
            "--classes",
            10,
        )
        recipe = ("--batch-size", 16, "--epochs", 14, "--warmup-epochs", 1, "--decay-epochs", "9,12")
        command = ["gyre", "run", "-n", "2", "--", *map(str, (*places, *recipe, "--target-accuracy", 0.9))]
        result = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("consistency", ["sync", "local:2"])
def test_a_checkpoint_that_is_kept_is_one_from_which_the_run_can_go_on(
    data: Path, tmp_path: Path, consistency: str
) -> None:
    """A rate of 1e12 leaves weights that are finite, from which the next forward pass makes values that are not."""
    run = tmp_path / "run"
    recipe = ("--batch-size", 8, "--warmup-epochs", 0, "--checkpoint-steps", 1, "--consistency", consistency)
    shared = ("--data-dir", data / "tfrecord", "--output-dir", run, *SMALL, *recipe)
    diverged = train(2, *shared, "--epochs", 2, "--lr", 1e12)
    assert diverged.returncode == 1
    broken = r"a value of layer1.0.downsample.1.running_var on rank \d is not finite in a forward pass after step 1 of"
    advice = "No checkpoint has been written yet: start again with a lower learning rate"
    assert re.search(rf"{broken} epoch 1. {advice}", diverged.stderr), diverged.stderr
    assert not list((run / "checkpoints").glob("checkpoint-*"))
    assert train(2, *shared, "--epochs", 1, "--lr", 0.01).returncode == 0
    newest = checkpoint(run, 96)
    later = train(2, *shared, "--epochs", 2, "--lr", 1e12, "--resume")
    assert later.returncode == 1
    assert re.search(rf"{broken} epoch 2. {newest} is from before: continue from it with --resume", later.stderr), (
        later.stderr
    )
    again = train(2, *shared, "--epochs", 2, "--lr", 0.01, "--resume")
    assert again.returncode == 0, again.stderr
    assert "resumed after epoch 1, step 6, samples 96" in again.stdout


def test_a_checkpoint_from_which_no_run_can_go_on_is_named(data: Path, tmp_path: Path) -> None:
    """Earlier versions have kept such ones, and recommended them."""
    run = tmp_path / "run"
    shared = ("--data-dir", data / "tfrecord", "--output-dir", run, *SMALL, "--batch-size", 8, "--warmup-epochs", 0)
    assert train(1, *shared, "--epochs", 1).returncode == 0
    metadata, tensors = _core.read_checkpoint(str(checkpoint(run, 96)))
    large = [(n, k, s, scaled(v, 1e30) if n.endswith("weight") else v) for n, k, s, v in tensors]
    checkpoint(run, 96).write_bytes(_core.encode_checkpoint(metadata, large))
    result = train(1, *shared, "--epochs", 2, "--resume")
    assert result.returncode == 1
    assert "the test loss on rank 0 is not finite after epoch 1 (step 12 of the run)" in result.stderr
    assert f"{checkpoint(run, 96)}, from which the run continued, leads there at once: remove it" in result.stderr


def scaled(values: bytes, factor: float) -> bytes:
    return (torch.frombuffer(bytearray(values), dtype=torch.float32) * factor).numpy().tobytes()
