"""A run that goes on with other ranks and batches: each sample counts once per epoch, whatever the size was before and
wherever in the epoch it stopped, and the weights are those of a run that never stopped where that is promised."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from few_digits import IMAGES_PER_FILE
from gyre.datasets import cifar10
from safetensors import safe_open
from safetensors.torch import load_file

LONG = bool(os.environ.get("GYRE_TEST_LONG"))
SAMPLES = re.compile(r"samples epoch (\d+) step \d+ rank \d+: ([\d ]+)")
EPOCHS = 2


class Program:
    """What the table needs to know of one of the training programs."""

    def __init__(self, name: str, data: Path, samples: int, *options: object, drops: bool = False) -> None:
        self.name = name
        self.data = data
        self.samples = samples
        self.drops = drops  # An incomplete last batch is left out.
        self.options = (*options, "--verbose", 2)

    def train(
        self, ranks: int, batch: int, folder: Path, *options: object, epochs: int = EPOCHS
    ) -> subprocess.CompletedProcess[str]:
        program = shutil.which(self.name)
        assert program, f"{self.name} is not on PATH: run ./dev build, or put build/release/bin there"
        launcher = ["gyre", "run", "-n", ranks, "--"] if ranks > 1 else []
        places = ("--data-dir", self.data, "--output-dir", folder, "--batch-size", batch, "--epochs", epochs)
        words = [*launcher, program, *places, *self.options, "--print-samples", *options]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, timeout=240, check=False, env=environment
        )


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


def check_counts(program: Program, total: Counter[tuple[int, int]], largest_step: int) -> None:
    for epoch in range(1, EPOCHS + 1):
        counts = {sample: count for (of, sample), count in total.items() if of == epoch}
        assert set(counts.values()) == {1}, f"epoch {epoch}: samples that counted more than once"
        missing = program.samples - len(counts)
        assert 0 <= missing < (largest_step if program.drops else 1), f"epoch {epoch}: {missing} samples are missing"


@pytest.mark.parametrize("name", ["gyre-cifar10", "gyre-cosmoflow", "gyre-resnet50"] if LONG else ["gyre-cifar10"])
def test_no_sample_is_lost_or_repeated_whatever_the_sizes(name: str, data: Path, tmp_path: Path) -> None:
    """The table: ranks before and after, the place in the epoch, and the batch. Only what is exact goes on unasked."""
    program = program_called(name, data, tmp_path)
    step = program.samples // 4  # Of all ranks, before: not a divisor of the number of samples.
    step -= step % 6
    sizes = [(1, step), (2, step // 2), (3, step // 3), (2, step // 4), (1, step // 3)]
    befores = sizes[:3] if LONG else sizes[:2]
    afters = sizes if LONG else [sizes[0], sizes[2], sizes[3]]
    for before, batch in befores:
        whole = tmp_path / f"before-{before}"
        result = program.train(before, batch, whole, "--checkpoint-steps", 1, "--keep-checkpoints", 100)
        assert result.returncode == 0, result.stderr
        check_counts(program, seen(result.stdout), step)
        every = checkpoints(whole)
        per_epoch = len(every) // EPOCHS
        # Within the first epoch, at its end, and within the last one.
        for place in (0, per_epoch - 1, per_epoch + 1):
            done = int(metadata_of(every[place])["samples"])
            assert every[place].name == f"checkpoint-{done:012}.safetensors"
            for after, batch_after in afters:
                folder = tmp_path / f"{before}-{place}-{after}-{batch_after}"
                (folder / "checkpoints").mkdir(parents=True)
                for file in every[: place + 1]:
                    (folder / "checkpoints" / file.name).hardlink_to(file)
                exact = after * batch_after == before * batch and (not program.drops or batch == batch_after)
                resumed = program.train(after, batch_after, folder, "--resume" if exact else "--resume-changed")
                assert resumed.returncode == 0, resumed.stderr
                check_counts(program, Counter(trained_before(result.stdout, done)) + seen(resumed.stdout), step)
                newest = checkpoints(folder)[-1]
                assert metadata_of(newest)["epoch"] == str(EPOCHS)
                if exact:
                    same_weights(newest, every[-1], bits=(after, batch_after) == (before, batch))
                shutil.rmtree(folder)


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


def test_what_cannot_continue_exactly_is_refused_or_accepted_with_what_it_means(data: Path, tmp_path: Path) -> None:
    program = program_called("gyre-cifar10", data, tmp_path)
    run = tmp_path / "run"
    assert program.train(1, 32, run, epochs=1).returncode == 0
    first = checkpoints(run)[-1]
    doubled = program.train(2, 32, run, "--resume")
    assert doubled.returncode == 1
    assert "the global batch was 32 and is 64 now" in doubled.stderr
    assert "--resume-changed" in doubled.stderr
    reordered = program.train(1, 32, run, "--resume", "--shuffle-seed", 9)
    assert reordered.returncode == 1
    assert "the order of the samples was seed 1 and is seed 9 now" in reordered.stderr
    assert checkpoints(run) == [first]
    accepted = program.train(2, 32, run, "--resume-changed")
    assert accepted.returncode == 0, accepted.stderr
    assert "continues a run although the global batch was 32 and is 64 now" in accepted.stderr
    # The newest is the one of the larger run, for the next resume as for `gyre export`.
    assert metadata_of(checkpoints(run)[-1])["epoch"] == "2"
    again = program.train(2, 32, run, "--resume", epochs=3)
    assert again.returncode == 0, again.stderr
    assert "resumed after epoch 2" in again.stdout


def test_a_checkpoint_of_an_earlier_version_is_refused_with_one_sentence(data: Path, tmp_path: Path) -> None:
    program = program_called("gyre-cifar10", data, tmp_path)
    run = tmp_path / "run"
    assert program.train(1, 100, run, epochs=1).returncode == 0
    newest = checkpoints(run)[-1]
    old = newest.with_name("checkpoint-00000001.safetensors")
    rewrite_without(newest, old, "samples")
    newest.unlink()
    result = program.train(1, 100, run, "--resume")
    assert result.returncode == 1
    assert f"cannot resume from {old}: it was written by gyre-cifar10" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def rewrite_without(path: Path, out: Path, name: str) -> None:
    from gyre.core import _core  # noqa: PLC0415

    metadata, tensors = _core.read_checkpoint(str(path))
    rest = {key: value for key, value in metadata.items() if key != name}
    out.write_bytes(_core.encode_checkpoint(rest, [tuple(tensor) for tensor in tensors]))


def test_the_best_epoch_is_kept_besides_the_newest_ones(data: Path, tmp_path: Path) -> None:
    program = program_called("gyre-cifar10", data, tmp_path)
    run = tmp_path / "run"
    # A rate at which it learns and then becomes worse.
    recipe = ("--keep-best", "accuracy", "--keep-checkpoints", 1)
    result = program.train(1, 50, run, *recipe, "--lr", 0.002, epochs=6)
    assert result.returncode == 0, result.stderr
    accuracies = [float(found) for found in re.findall(r"test accuracy ([\d.]+)", result.stdout)]
    best = run / "checkpoints" / "best-accuracy.safetensors"
    metadata = metadata_of(best)
    assert float(metadata["best/accuracy"]) == pytest.approx(max(accuracies), abs=1e-4)
    assert int(metadata["epoch"]) == 1 + accuracies.index(max(accuracies))
    assert len(checkpoints(run)) == 1
    before = best.read_bytes()
    # A resumed run knows it: hardly a step is better.
    worse = program.train(1, 50, run, *recipe, "--lr", 1e-12, "--resume", epochs=7)
    assert worse.returncode == 0, worse.stderr
    if max(accuracies) > accuracies[-1]:
        assert best.read_bytes() == before
