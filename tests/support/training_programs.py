"""The training programs as tests of resuming need them: small runs that print which samples they train."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch
from few_digits import IMAGES_PER_FILE
from gyre.datasets import cifar10
from safetensors import safe_open
from safetensors.torch import load_file

SAMPLES = re.compile(r"samples epoch (\d+) step \d+ rank \d+: ([\d ]+)")
EPOCHS = 2


class Program:
    """What tests need to know of one of the training programs."""

    def __init__(self, name: str, data: Path, samples: int, *options: object, drops: bool = False) -> None:
        self.name = name
        self.data = data
        self.samples = samples
        self.drops = drops  # An incomplete last batch is left out.
        self.options = (*options, "--verbose", 2)

    def check_counts(self, total: Counter[tuple[int, int]], largest_step: int) -> None:
        """That each sample counts once in each epoch; but for those of a last batch that is left out."""
        for epoch in range(1, EPOCHS + 1):
            counts = {sample: count for (of, sample), count in total.items() if of == epoch}
            assert set(counts.values()) == {1}, f"epoch {epoch}: samples that counted more than once"
            missing = self.samples - len(counts)
            assert 0 <= missing < (largest_step if self.drops else 1), f"epoch {epoch}: {missing} samples are missing"

    def command(self, batch: int, folder: Path, *options: object, epochs: int = EPOCHS) -> list[str]:
        """Of one rank."""
        program = shutil.which(self.name)
        assert program, f"{self.name} is not on PATH: run ./dev build, or put build/release/bin there"
        places = ("--data-dir", self.data, "--output-dir", folder, "--batch-size", batch, "--epochs", epochs)
        return [str(word) for word in (program, *places, *self.options, "--print-samples", *options)]

    def train(
        self, ranks: int, batch: int, folder: Path, *options: object, epochs: int = EPOCHS
    ) -> subprocess.CompletedProcess[str]:
        launcher = ["gyre", "run", "-n", str(ranks), "--"] if ranks > 1 else []
        words = [*launcher, *self.command(batch, folder, *options, epochs=epochs)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False, env=environment)


def seen(output: str) -> Counter[tuple[int, int]]:
    """How often each sample of each epoch was trained."""
    steps = SAMPLES.findall(output)
    return Counter((int(epoch), int(sample)) for epoch, samples in steps for sample in samples.split())


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        found: dict[str, str] = file.metadata()
        return found


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("checkpoint-*.safetensors"))


def make(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "gyre.datasets", *map(str, words)], check=True, capture_output=True)


def program_called(name: str, data: Path, tmp_path: Path) -> Program:
    if name == "gyre-cifar10":
        images = IMAGES_PER_FILE * cifar10.TRAIN_FILES
        return Program(name, data, images, "--augment", "flip")
    if name == "gyre-cosmoflow":
        make("cosmo", "--out", tmp_path / "data", "--size", 32, "--train", 34, "--validation", 4)
        network = ("--conv-size", 2, "--fc1-size", 16, "--fc2-size", 8, "--warmup-epochs", 0)
        return Program(name, tmp_path / "data", 34, *network)
    size = ("--size", 48, "--classes", 4, "--train", 102, "--validation", 8)
    make("imagenet", "--out", tmp_path / "data", *size)
    network = ("--depth", 14, "--image-size", 32, "--classes", 4, "--warmup-epochs", 1)
    return Program(name, tmp_path / "data", 102, *network, drops=True)


def trained_before(output: str, done: int) -> list[tuple[int, int]]:
    """The samples of the steps that a checkpoint after `done` samples has behind it."""
    found: list[tuple[int, int]] = []
    steps: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for epoch, step, samples in re.findall(r"samples epoch (\d+) step (\d+) rank \d+: ([\d ]+)", output):
        steps.setdefault((int(epoch), int(step)), []).extend((int(epoch), int(sample)) for sample in samples.split())
    for key in sorted(steps):
        if len(found) == done:
            break
        found += steps[key]
    assert len(found) == done
    return found


def same_weights(left: Path, right: Path, *, bits: bool) -> None:
    one, other = load_file(left), load_file(right)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        if bits:
            assert torch.equal(tensor, other[name]), name
        else:  # The order of the additions differs.
            torch.testing.assert_close(tensor, other[name], rtol=5e-2, atol=5e-3)
