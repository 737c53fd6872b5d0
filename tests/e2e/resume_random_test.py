"""Runs that stop anywhere and go on in any way, drawn at random: what --resume does is compared with a model that knows
only the guide. Each sample counts once per epoch, or the run is refused with a sentence that names every reason."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from effort import first_seed, rounds
from training_programs import (
    EPOCHS,
    Program,
    checkpoints,
    metadata_of,
    program_called,
    same_weights,
    seen,
    trained_before,
)

PROGRAMS = ("gyre-cifar10", "gyre-cosmoflow", "gyre-resnet50")
LOCAL = ("local:2", "local:3", "local:2:nesterov", "local:2:bmuf")


@dataclass(frozen=True)
class Way:
    """How a part of a run is started."""

    ranks: int
    batch: int
    consistency: str
    seed: int

    @property
    def step(self) -> int:
        return self.ranks * self.batch

    def options(self, program: str) -> tuple[object, ...]:
        seed = "--shuffle-seed" if program == "gyre-cifar10" else "--seed"
        return ("--consistency", self.consistency, seed, self.seed)

    def changes(self, before: Way, program: str) -> list[str]:
        """What the guide says to be needed as it was, and is not."""
        found = []
        if before.step != self.step:
            found.append(f"the global batch was {before.step} and is {self.step} now")
        if before.seed != self.seed:
            found.append(f"the order of the samples was seed {before.seed} and is seed {self.seed} now")
        if before.consistency != self.consistency:
            found.append(f"--consistency was {before.consistency} and is {self.consistency} now")
        # Workers that step together are interchangeable; a checkpoint does not hold the number of those.
        if self.consistency != "sync" and before.ranks != self.ranks:
            found.append(f"the number of workers was {before.ranks} and is {self.ranks} now")
        if program == "gyre-resnet50" and before.batch != self.batch:
            found.append(f"the batch of a rank was {before.batch} and is {self.batch} now")
        return found


def drawn(choose: random.Random, samples: int) -> tuple[Way, Way]:
    """Often the same in one respect or another, because pairs without anything in common are all refused."""

    def steps() -> int:
        return 6 * choose.randint(2, max(2, samples // 18))

    def way(step: int, consistency: str, seed: int) -> Way:
        ranks = choose.choice([1, 2, 3])
        return Way(ranks, max(1, step // ranks), consistency, seed)

    step = steps()
    before = way(step, choose.choice(["sync", *LOCAL]), choose.randint(1, 2))
    if choose.random() < 0.2:
        return before, before
    consistency = before.consistency if choose.random() < 0.7 else choose.choice(["sync", *LOCAL])
    seed = before.seed if choose.random() < 0.8 else 3
    return before, way(step if choose.random() < 0.7 else steps(), consistency, seed)


def copy_up_to(done: int, source: Path, folder: Path) -> None:
    """The checkpoints that a run has when it is killed after `done` samples; those of single workers too."""
    for file in (source / "checkpoints").rglob("checkpoint-*.safetensors"):
        if int(file.stem.rpartition("-")[2]) <= done:
            copy = folder / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.hardlink_to(file)


def check_resumed(program: Program, output: str, before: Way, after: Way, whole: str, place: Path) -> None:
    """`place`: the checkpoint with which the run has continued."""
    found = metadata_of(place)
    earlier = trained_before(whole, int(found["samples"]))
    if before.seed != after.seed:  # The epoch begins again.
        earlier = [(epoch, sample) for epoch, sample in earlier if epoch <= int(found["epoch"])]
    program.check_counts(Counter(earlier) + seen(output), max(before.step, after.step))


@pytest.mark.parametrize("case", range(rounds(4, 60)))
def test_each_sample_counts_once_or_the_run_is_refused(case: int, data: Path, tmp_path: Path) -> None:
    print(f"GYRE_TEST_SEED={first_seed()}")
    choose = random.Random(f"{first_seed()} {case}")
    program = program_called(choose.choice(PROGRAMS), data, tmp_path)
    before, after = drawn(choose, program.samples)
    print(program.name, before, after)
    source, folder = tmp_path / "whole", tmp_path / "resumed"
    # Workers that take steps alone exchange before each checkpoint: the two parts have to write the same ones.
    keeping = ("--checkpoint-steps", 1, "--keep-checkpoints", 100)
    whole = program.train(before.ranks, before.batch, source, *before.options(program.name), *keeping)
    assert whole.returncode == 0, whole.stderr
    program.check_counts(seen(whole.stdout), before.step)
    place = choose.choice(checkpoints(source)[:-1])
    print(place.name)
    copy_up_to(int(metadata_of(place)["samples"]), source, folder)
    kept = checkpoints(folder)

    changes = after.changes(before, program.name)
    options = (*after.options(program.name), *keeping)
    resumed = program.train(after.ranks, after.batch, folder, *options, "--resume")
    if not changes:
        assert resumed.returncode == 0, resumed.stderr
        check_resumed(program, resumed.stdout, before, after, whole.stdout, place)
        same_weights(checkpoints(folder)[-1], checkpoints(source)[-1], bits=before == after)
        return
    assert resumed.returncode == 1
    refusal = re.search(r"the run cannot continue exactly where it stopped: (.*?)\. Restore what", resumed.stderr)
    assert refusal, resumed.stderr
    assert sorted(re.findall(r"(?:^|; )([^;]*? now) \(", refusal[1])) == sorted(changes)
    assert checkpoints(folder) == kept
    assert not seen(resumed.stdout), "nothing is trained"
    accepted = program.train(after.ranks, after.batch, folder, *options, "--resume-changed")
    assert accepted.returncode == 0, accepted.stderr
    check_resumed(program, accepted.stdout, before, after, whole.stdout, place)
    assert metadata_of(checkpoints(folder)[-1])["epoch"] == str(EPOCHS)
    shutil.rmtree(folder)
