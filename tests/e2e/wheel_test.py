"""The wheel works for somebody who has Python, pip and torch, and nothing of this checkout.

The environment is a fresh venv with torch and what torch needs linked in from .venv (copying them would take longer
than all else here), no variable of ours, and a PATH without our programs.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD_SECONDS = 1500
STEP_SECONDS = 240

TRAINING = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gyre")  # No import of ours: torch knows it.
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
sums = [torch.zeros(1) for _ in range(2)]
dist.all_gather(sums, sum(p.detach().sum() for p in model.parameters()).view(1))
print("equal" if torch.equal(sums[0], sums[1]) else "different", dist.get_backend())
dist.destroy_process_group()
"""


def closure(name: str, seen: set[str]) -> set[str]:
    """The distribution and all that it requires here."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen:
        return seen
    try:
        requirements = importlib.metadata.distribution(name).requires or []
    except importlib.metadata.PackageNotFoundError:
        return seen
    seen.add(key)
    for requirement in requirements:
        if "extra ==" not in requirement:
            match = re.match(r"[A-Za-z0-9_.\-]+", requirement)
            if match is not None:
                closure(match[0], seen)
    return seen


def link_distribution(name: str, target: Path) -> None:
    distribution = importlib.metadata.distribution(name)
    for file in distribution.files or []:
        top = file.parts[0]
        source = Path(str(distribution.locate_file(top)))
        if top not in ("..", "__pycache__") and not (target / top).exists():
            (target / top).symlink_to(source)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with torch and the wheel."""
    built = subprocess.run(
        [str(ROOT / "dev"), "wheel"], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert built.returncode == 0, built.stderr
    wheel = built.stdout.strip()
    folder = tmp_path_factory.mktemp("wheel") / "environment"
    venv.create(folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in sorted(closure("torch", set()) | closure("numpy", set())):
        link_distribution(name, packages)
    # Our pip, into that environment: to put a pip of its own there takes longer than all else.
    run(folder, [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", "--no-index", wheel])
    return folder


def run(environment: Path, command: list[str]) -> str:
    """Its output, from an empty folder and a nearly empty environment."""
    empty = environment.parent / "empty"
    empty.mkdir(exist_ok=True)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS,
        check=False,
        cwd=empty,
        env={"PATH": f"{environment / 'bin'}:/usr/bin:/bin", "HOME": str(empty), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_nothing_in_it_that_must_be_the_users_own(environment: Path) -> None:
    names = [path.name for path in next(environment.glob("lib/python*/site-packages")).glob("gyre_train.libs/*")]
    assert names
    assert not [name for name in names if re.match(r"lib(stdc\+\+|gcc_s|torch|c10|gomp|arrow|parquet)", name)], names


def test_ddp_over_gyre_with_gyre_run(environment: Path) -> None:
    script = environment.parent / "train.py"
    script.write_text(TRAINING)
    said = run(environment, ["gyre", "run", "--nproc-per-node", "2", str(script)])
    assert sorted(said.splitlines()) == ["[0] equal gyre", "[1] equal gyre"]


def test_the_c_plus_plus_program(environment: Path, digits: dict[str, bytes]) -> None:
    data = environment.parent / "data"
    for name, content in digits.items():
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    command = ["gyre", "run", "-n", "2", "--", "gyre-cifar10", "--data-dir", str(data), "--batch-size", "16"]
    assert "epoch" in run(environment, [*command, "--epochs", "1"])


def test_the_doctor_finds_nothing_wrong_and_functions_run(environment: Path) -> None:
    report = json.loads(run(environment, ["gyre", "doctor", "-o", "json"]))
    states = {finding["name"]: finding["state"] for finding in report["findings"]}
    assert report["wrong"] == 0, report
    assert states["backend gyre"] == states["two ranks"] == states["gyre"] == "ok"
    assert os.path.realpath(sys.prefix) != os.path.realpath(environment)
