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


@pytest.mark.parametrize("program", PROGRAMS)
def test_folders_budget_and_hashes_are_those_that_were_asked_for(program: str, data: Path, tmp_path: Path) -> None:
    recipe: tuple[object, ...] = ("--batch-size", 100)
    if program == "gyre-cosmoflow":
        data = tmp_path / "data"
        make(["cosmo", "--out", str(data), "--size", "32", "--train", "8", "--validation", "2"])
        recipe = ("--conv-size", 2, "--fc1-size", 8, "--fc2-size", 8)
    if program == "gyre-resnet50":
        data = tmp_path / "data"
        make(["imagenet", "--out", str(data), "--size", "32", "--train", "16", "--validation", "4"])
        recipe = ("--depth", 14, "--image-size", 32, "--batch-size", 8)
    places = ("--checkpoint-dir", tmp_path / "kept", "--tensorboard-dir", tmp_path / "curves")
    shared = ("--data-dir", data, *places, "--epochs", 1, "--verbose", 0, "--print-hashes", *recipe)
    done = run(program, *shared)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"(hash epoch 1 step \d+ rank 0 [0-9a-f]{16}\n)+", done.stdout)
    assert len(list((tmp_path / "kept").glob("checkpoint-*.safetensors"))) == 1
    assert list((tmp_path / "curves").glob("events.*"))
    small = run(program, *shared, "--resume", "--memory-budget", "1KB")
    assert small.returncode == 1
    assert "budget" in small.stderr
