"""DistributedOptimizer in C++ and in Python against one model in NumPy (tests/support/optimizer_model.py): frozen,
thawed and unused parameters, gradients accumulated over several backward passes, channels-last weights, tied names,
closures, clipping, steps that are left out, and the broadcast of parameters, buffers and optimizer state of a rank 0
that was resumed alone. `GYRE_TEST_SEED=N` repeats a day's random cases; `GYRE_TEST_LONG=1` runs more of them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import first_seed, rounds
from job_environment import job_environment
from optimizer_model import Model
from rank_template import ForkedRank, RankTemplate

ROOT = Path(__file__).resolve().parents[3]
IN_CPP = ROOT / "build/release/tests/conformance/optimizer/gyre_optimizer_rank"
IN_PYTHON = ROOT / "tests/support/optimizer_rank.py"
LONGEST_SECONDS = 100.0
OPTIMIZERS: list[dict[str, Any]] = [
    {"class": "SGD", "lr": 0.1},
    {"class": "SGD", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1},
    {"class": "Adam", "lr": 0.05, "weight_decay": 0.1},
    {"class": "AdamW", "lr": 0.05, "weight_decay": 0.1},
    {"class": "RMSprop", "lr": 0.01, "momentum": 0.5, "weight_decay": 0.1},
    {"class": "Adagrad", "lr": 0.1, "weight_decay": 0.1},
    {"class": "LBFGS", "lr": 0.4},
]
# The first one is trained by all ranks in every step; what the others are a case chooses.
SHAPES = [[5], [4, 3, 3, 2], [2, 3], [0, 3], [1], [12, 20], [3, 2, 1, 1]]
# It views gradients as flat ones, which it cannot with channels-last ones; and in its first, short step few digits of a
# large gradient change.
SHAPES_OF_LBFGS = [[5], [6], [2], [0, 3], [1], [3], [2]]
WAYS = ["plain", "plain", "plain", "halved", "closure", "left out"]


def make_case(seed: int, size: int) -> dict[str, Any]:
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)]
    shapes = SHAPES_OF_LBFGS if optimizer["class"] == "LBFGS" else SHAPES
    count = len(shapes)
    unused = set(choose.sample(range(1, count), choose.choice([0, 0, 1, 2])))
    frozen = choose.sample(range(1, count), choose.choice([0, 1, 2]))
    sparsity = choose.choice([0.0, 0.3, 0.6])  # How often a rank has no gradient for a parameter.
    passes = choose.choice([1, 1, 2, 3])

    def values() -> list[list[float]]:
        return [numbers.normal(size=int(np.prod(shape))).astype(np.float32).tolist() for shape in shapes]

    def gradients() -> list[list[float] | None]:
        return [
            None if i in unused or (i > 0 and choose.random() < sparsity) else given for i, given in enumerate(values())
        ]

    always = [[gradients() for _ in range(passes)] for _ in range(size)]
    is_lbfgs = optimizer["class"] == "LBFGS"  # Its loss stays the same, as it takes for granted.

    def step() -> dict[str, Any]:
        return {
            "way": "closure" if is_lbfgs else choose.choice(WAYS),
            "set_to_none": choose.random() < 0.6,
            "gradients": always if is_lbfgs else [[gradients() for _ in range(passes)] for _ in range(size)],
            "thawed": [i for i in frozen if choose.random() < 0.2],
            "frozen": [i for i in range(1, count) if choose.random() < 0.03],
        }

    before = [always[0][0] if is_lbfgs else gradients() for _ in range(choose.choice([0, 1, 3]))]
    return {
        "seed": seed,
        "optimizer": optimizer,
        "shapes": shapes,
        "passes": passes,
        "frozen": frozen,
        "first": [values() for _ in range(size)],
        "resumed": [[None if i in frozen else given for i, given in enumerate(one)] for one in before],
        "new_rate": optimizer["lr"] * choose.choice([1.0, 0.5]),
        "steps": [step() for _ in range(choose.randint(3, 6))],
    }


@pytest.fixture(scope="module")
def template() -> Iterator[RankTemplate]:
    """Of all ranks in Python."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
    started = RankTemplate({**inherited, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"})
    yield started
    started.close()


def play(template: RankTemplate, language: str, cases: list[dict[str, Any]], size: int, folder: Path) -> list[Any]:
    """What each rank has found."""
    given = folder / "cases"
    given.write_text(json.dumps(cases))
    outputs = [folder / f"output.{rank}" for rank in range(size)]
    found = [folder / f"found.{rank}" for rank in range(size)]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
    ranks: list[ForkedRank | subprocess.Popen[bytes]] = []
    with job_environment(size) as (variables, descriptors):
        for rank in range(size):
            own = inherited | variables[rank]
            own |= {
                "GYRE_TEST_CASES": str(given),
                "GYRE_TEST_FOUND": str(found[rank]),
                "PYTHONPATH": str(ROOT / "python"),
            }
            with outputs[rank].open("wb") as output:
                if language == "Python":
                    ranks.append(template.fork([str(IN_PYTHON), "main"], own, folder, output, descriptors[rank]))
                    continue
                own |= {name: str(descriptor) for name, descriptor in descriptors[rank].items()}
                command = [str(IN_CPP), str(given), str(found[rank])]
                inherit = list(descriptors[rank].values())
                ranks.append(subprocess.Popen(command, env=own, pass_fds=inherit, stdout=output, stderr=output))
    codes = [wait_for(rank) for rank in ranks]
    assert codes == [0] * size, "\n".join(f"--- {path.name}\n{path.read_text()}" for path in outputs)
    return [json.loads(path.read_text()) for path in found]


def wait_for(rank: ForkedRank | subprocess.Popen[bytes]) -> int:
    if isinstance(rank, ForkedRank):
        if not rank.ended_within(LONGEST_SECONDS):
            rank.send_signal(signal.SIGABRT)
        return rank.wait()
    try:
        return rank.wait(LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        rank.kill()
        return rank.wait()


def compare(case: dict[str, Any], size: int, of_ranks: list[Any]) -> None:
    model = Model(case, size)
    for number in range(len(case["steps"]) + 1):
        if number > 0:
            model.take(case["steps"][number - 1])
        # Differences of gradients that hardly differ have few digits.
        tolerance = 2e-3 if case["optimizer"]["class"] == "LBFGS" else 2e-4
        where = f"GYRE_TEST_SEED={first_seed()}, case {case['seed']} with {case['optimizer']}, after step {number}"
        for rank in range(size):
            found = of_ranks[rank][number]
            for i, (value, expected) in enumerate(zip(found["values"], model.values, strict=True)):
                there = f"{where}, rank {rank}, parameter {i}"
                np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance / 10, err_msg=there)
            assert found["values"] == of_ranks[0][number]["values"], where
            assert found["defined"] == [gradient is not None for gradient in model.gradients], f"{where}, rank {rank}"
            assert found["buffers"] == [[1.0, 1.0], [7.0]], where


@pytest.mark.parametrize("language", ["C++", "Python"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_training_is_what_the_model_says(template: RankTemplate, tmp_path: Path, language: str, size: int) -> None:
    seeds = range(1000 * first_seed(), 1000 * first_seed() + rounds(14, 140))
    print(f"GYRE_TEST_SEED={first_seed()}: cases {seeds}")
    cases = [make_case(seed, size) for seed in seeds]
    found = play(template, language, cases, size, tmp_path)
    for number, case in enumerate(cases):
        compare(case, size, [of_rank[number] for of_rank in found])
