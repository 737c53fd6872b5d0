"""A run that goes on with other ranks and batches: each sample counts once per epoch, whatever the size was before and
wherever in the epoch it stopped, and the weights are those of a run that never stopped where that is promised."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from training_programs import EPOCHS, checkpoints, metadata_of, program_called, same_weights, seen, trained_before

LONG = bool(os.environ.get("GYRE_TEST_LONG"))


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
        program.check_counts(seen(result.stdout), step)
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
                program.check_counts(Counter(trained_before(result.stdout, done)) + seen(resumed.stdout), step)
                newest = checkpoints(folder)[-1]
                assert metadata_of(newest)["epoch"] == str(EPOCHS)
                if exact:
                    same_weights(newest, every[-1], bits=(after, batch_after) == (before, batch))
                shutil.rmtree(folder)


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
    assert "continues although the global batch was 32 and is 64 now" in accepted.stderr
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
