"""Version rot: what users see with another torch than the one that the C++ programs link must be told, not guessed.

`./dev test torch VERSION` runs this, and all beside it, with another version; CI with the one that everything links.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gyre._devices import delegates
from gyre.core import _core

from gyre import doctor


def minor(version: str) -> list[str]:
    return version.split(".")[:2]


SAME = minor(_core.libtorch_version) == minor(torch.__version__)


def test_a_program_refuses_another_libtorch_in_one_line(gyre: Path, tmp_path: Path) -> None:
    # As the wheel's programs do: with the libtorch of the torch that is installed here.
    libraries = {"LD_LIBRARY_PATH": str(Path(torch.__file__).parent / "lib")}
    done = subprocess.run(
        [str(gyre.parent / "gyre-cifar10"), "--data-dir", str(tmp_path)],
        env={**os.environ, **libraries},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done
    refusal = f"built for torch {_core.libtorch_version}, and torch {'.'.join(minor(torch.__version__))}"
    assert (refusal in done.stderr) == (not SAME), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_the_doctor_says_what_works_with_this_torch() -> None:
    found = {finding.name: finding for finding in doctor.examine(self_test=False)}
    assert found["torch"].state == "ok", "add the version to doctor.TESTED_TORCH_VERSIONS"
    programs = found["C++ programs"]
    assert (programs.state, "refuse" in programs.text) == (("ok", False) if SAME else ("note", True)), programs
    assert SAME or programs.remedy == f"{sys.executable} -m pip install torch=={_core.libtorch_version}"


def devices_line() -> doctor.Finding | None:
    return next((finding for finding in doctor.examine(self_test=False) if finding.name == "devices"), None)


def let_torch_see(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    def current(*, check_available: bool = False) -> torch.device | None:
        return torch.device("cuda") if count or not check_available else None

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)


def test_the_doctor_says_where_tensors_of_gpus_go_and_what_has_been_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    let_torch_see(monkeypatch, 2)
    devices = devices_line()
    assert devices is not None
    assert devices.state == "note"
    assert "2 of type 'cuda'" in devices.text
    assert "has run on one NVIDIA H200 only" in devices.text
    monkeypatch.setattr(delegates, "is_missing", lambda _: False)
    devices = devices_line()
    assert devices is not None
    assert "go to torch's backend nccl" in devices.text
    assert "cpu:gyre,cuda:BACKEND" in devices.remedy
    monkeypatch.setattr(delegates, "is_missing", lambda _: True)
    devices = devices_line()
    assert devices is not None
    assert "built without nccl" in devices.text
    assert "cuda:gyre" in devices.remedy


@pytest.mark.parametrize(("gpus", "why"), [(0, "shows no NVIDIA GPU"), (2, "its driver may not answer")])
def test_the_doctor_says_what_a_torch_for_gpus_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: int, why: str
) -> None:
    let_torch_see(monkeypatch, 0)
    monkeypatch.setattr(doctor, "DEVICE_FOLDER", tmp_path)
    for name in [f"nvidia{number}" for number in range(gpus)] + ["nvidiactl"]:
        (tmp_path / name).touch()
    devices = devices_line()
    assert devices is not None
    assert devices.text.startswith("torch is built for 'cuda', and sees none"), devices
    assert why in devices.text


def test_the_doctor_says_that_a_torch_for_cpus_leaves_gpus_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: None)
    monkeypatch.setattr(doctor, "DEVICE_FOLDER", tmp_path)
    assert devices_line() is None
    (tmp_path / "nvidia0").touch()
    devices = devices_line()
    assert devices is not None
    assert "shows NVIDIA GPUs (1), and torch is built for CPUs only" in devices.text
