"""An option that several training programs have means the same in all of them, down to the words of its help, so that a
script for one can be used for another."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from gyre.datasets.command import main as make
from safetensors import safe_open

PROGRAMS = ("gyre-cifar10", "gyre-cosmoflow", "gyre-resnet50")
OF_ALL = {
    "--data-dir", "--output-dir", "--checkpoint-dir", "--tensorboard-dir", "--resume", "--resume-changed",
    "--keep-checkpoints", "--checkpoint-steps", "--keep-best", "--threads", "--memory-budget", "--batch-size",
    "--epochs", "--warmup-epochs", "--seed", "--consistency", "--verbose", "--print-hashes", "--print-samples",
    "--check-replicas",
}  # fmt: skip
OF_THEIR_OWN = {"--data-dir", "--threads", "--lr", "--augment"}  # With words about the program's own samples and rates.


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    path = shutil.which(program)
    assert path, f"{program} is not on PATH: run ./dev build, or put build/release/bin there"
    command = [path, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)


def help_of(program: str) -> dict[str, str]:
    table = json.loads(run(program, "--option-table").stdout)
    return {name: option["description"] for option in table["options"] for name in option["names"]}


def test_shared_options_have_one_meaning() -> None:
    helps = {program: help_of(program) for program in PROGRAMS}
    for program in PROGRAMS:
        assert helps[program].keys() >= OF_ALL, program
        for other in PROGRAMS:
            for name in (helps[program].keys() & helps[other].keys()) - OF_THEIR_OWN:
                assert helps[program][name] == helps[other][name], name


# Options that change no result, so that a run may go on with others in silence.
WITHOUT_EFFECT = {
    "--help", "--version", "--option-table", "--data-dir", "--output-dir", "--checkpoint-dir", "--tensorboard-dir",
    "--resume", "--resume-changed", "--keep-checkpoints", "--checkpoint-steps", "--keep-best", "--threads", "--epochs",
    "--verbose", "--print-hashes", "--print-samples", "--check-replicas", "--target-accuracy", "--target-mae",
    "--memory-budget",  # Its effect on the order of the samples is compared as that order.
    "--play-ranks",  # Is in "ranks".
    "--synthetic", "--lines", "--num-warmup-batches", "--num-batches-per-iter", "--num-iters",  # Save nothing.
}  # fmt: skip
IN_ANOTHER_ENTRY = {
    "--kernel-size": "network",
    "--conv-size": "network",
    "--fc1-size": "network",
    "--fc2-size": "network",
}
SMALL_DATA = {
    "gyre-cosmoflow": ["cosmo", "--size", "32", "--train", "8", "--validation", "2"],
    "gyre-resnet50": ["imagenet", "--size", "32", "--train", "16", "--validation", "4"],
}
SMALL_RECIPE: dict[str, tuple[object, ...]] = {
    "gyre-cifar10": ("--batch-size", 100),
    "gyre-cosmoflow": ("--batch-size", 4, "--conv-size", 2, "--fc1-size", 8, "--fc2-size", 8),
    "gyre-resnet50": ("--depth", 14, "--image-size", 32, "--batch-size", 8),
}


def data_for(program: str, digits: Path, tmp_path: Path) -> Path:
    if program not in SMALL_DATA:
        return digits
    make([*SMALL_DATA[program], "--out", str(tmp_path / "made")])
    return tmp_path / "made"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_checkpoint_has_every_option_that_changes_the_result(program: str, data: Path, tmp_path: Path) -> None:
    """Whoever adds an option has to say which kind it is; some that changed the samples could be forgotten."""
    accepted_only = run(program, "--help").stdout.partition("Accepted for scripts of the benchmark, without effect")[2]
    names = {name for name in help_of(program) if name.startswith("--")} - set(re.findall(r"--[a-z-]+", accepted_only))
    shared = ("--data-dir", data_for(program, data, tmp_path), "--output-dir", tmp_path / "run", "--epochs", 1)
    done = run(program, *shared, "--verbose", 0, *SMALL_RECIPE[program])
    assert done.returncode == 0, done.stderr
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    with safe_open(checkpoint, "pt") as file:
        recorded = file.metadata().keys()
    assert {name for name in names - WITHOUT_EFFECT if IN_ANOTHER_ENTRY.get(name, name) not in recorded} == set()
    assert WITHOUT_EFFECT.isdisjoint(recorded)


@pytest.mark.parametrize("program", PROGRAMS)
def test_folders_budget_and_hashes_are_those_that_were_asked_for(program: str, data: Path, tmp_path: Path) -> None:
    data = data_for(program, data, tmp_path)
    places = ("--checkpoint-dir", tmp_path / "kept", "--tensorboard-dir", tmp_path / "curves")
    shared = ("--data-dir", data, *places, "--epochs", 1, "--verbose", 0, "--print-hashes", *SMALL_RECIPE[program])
    done = run(program, *shared)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"(hash epoch 1 step \d+ rank 0 [0-9a-f]{16}\n)+", done.stdout)
    assert len(list((tmp_path / "kept").glob("checkpoint-*.safetensors"))) == 1
    assert list((tmp_path / "curves").glob("events.*"))
    small = run(program, *shared, "--resume", "--memory-budget", "1KB")
    assert small.returncode == 1
    assert "budget" in small.stderr
