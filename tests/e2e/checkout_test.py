"""In a checkout `./dev build` leaves what the wheel would: torch knows the backend, and pip knows the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from linked_packages import make_venv
from running_job import StartJob

ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / "tools" / "dev"

TRAINING = """
import torch.distributed as dist
dist.init_process_group("gyre")  # No import of ours.
print("backend", dist.get_backend(), dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout") / "environment"
    make_venv(folder, "torch", "numpy", "cloudpickle")
    return folder


def link_into(environment: Path) -> str:
    """What `./dev build` does at its end; returns its messages."""
    script = f'ROOT="{ROOT}"; source "{DEV}/common.sh"; source "{DEV}/build.sh"; VENV="$1"; link_into_venv'
    done = subprocess.run(["bash", "-c", script, "dev", str(environment)], capture_output=True, text=True, check=True)
    return done.stderr


def variables(python: Path) -> dict[str, str]:
    return {"PATH": f"{python.parent}:{os.environ['PATH']}", "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}


def test_torch_knows_the_backend_after_a_build(environment: Path, start_job: StartJob, tmp_path: Path) -> None:
    assert link_into(environment) == ""
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    python = environment / "bin" / "python"
    job = start_job("--nproc-per-node", "2", str(script), env=variables(python))
    assert job.wait() == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == ["[0] backend gyre 2", "[1] backend gyre 2"]


def test_gyre_config_is_a_program_of_the_environment(environment: Path) -> None:
    link_into(environment)
    program = str(environment / "bin" / "gyre-config")
    said = subprocess.run([program, "--cmake-dir"], capture_output=True, text=True, check=True, env={"PATH": ""}).stdout
    assert (Path(said.strip()) / "gyreConfig.cmake").exists()


def test_pip_lists_the_checkout_and_can_remove_it(environment: Path) -> None:
    link_into(environment)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(environment)]
    listed = subprocess.run([*pip, "list", "--editable"], capture_output=True, text=True, check=True).stdout
    assert "gyre-train" in listed
    assert str(ROOT) in listed
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "gyre-train"], capture_output=True, check=True)
    left = [path.name for path in environment.glob("lib/python*/site-packages/gyre*")]
    assert left == []


def test_a_package_that_is_installed_is_left_alone(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    packages = make_venv(environment)
    installed = packages / "gyre_train-0.1.0.dist-info"
    installed.mkdir()
    (installed / "INSTALLER").write_text("pip\n")
    assert "gyre-train is installed in" in link_into(environment)
    assert [path.name for path in packages.glob("gyre*")] == [installed.name]


def test_the_closing_block_names_the_remedy_where_torch_does_not_know_it(start_job: StartJob, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    # What a Python without the package looks like to torch.
    switched_off = {**variables(Path(sys.executable)), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    job = start_job("--nproc-per-node", "2", str(script), env=switched_off)
    assert job.wait() == 1
    block = job.stderr[job.stderr.index("failed first") :]
    assert "Unknown backend type gyre" in block
    assert "write `import gyre.distributed` before init_process_group" in block


def test_a_checkout_that_has_not_been_built_says_so(tmp_path: Path) -> None:
    """After `./dev demo`, which builds what it runs, Python said only that it cannot import a name."""
    shutil.copytree(ROOT / "python", tmp_path / "python", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "dev").touch()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "python")}
    command = [sys.executable, "-c", "import gyre.torch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert f"Gyre's extension module has not been built in {tmp_path}: run `./dev build` there" in done.stderr


def test_a_checkout_that_was_pulled_and_not_built_says_so() -> None:
    script = "from gyre.core import _core; assert not hasattr(_core, 'new'); _core.new()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "AttributeError: Gyre's extension module has no 'new': it is of another state than its Python files; "
        "run `./dev build`"
    )
