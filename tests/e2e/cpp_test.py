"""C++ programs of others build with Gyre as a subdirectory, from an empty folder, as docs/guide/cpp.md says.

The CMake file is the guide's, the programs the README's and examples/03_libtorch.cc. What is compiled comes out of
ccache after the first time: its folder has a fixed name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_job import StartJob

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guide" / "cpp.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BUILD_SECONDS = 1500

README_PROGRAM = re.findall(r"```cpp\n(.*?)```", README, re.DOTALL)[0]
LIBTORCH_PROGRAM = (ROOT / "examples" / "03_libtorch.cc").read_text(encoding="utf-8")
(SUBDIRECTORY,) = re.findall(r"```cmake\n(.*?)```", GUIDE, re.DOTALL)


def output_of(command: list[str], folder: Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
        env={**os.environ, "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1", **variables},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def build(folder: Path, *definitions: str) -> Path:
    """Configures and builds what lies in `folder`; returns the folder of its programs."""
    compiler = ["-G", "Ninja", "-DCMAKE_CXX_COMPILER=g++", f"-DPython_EXECUTABLE={sys.executable}"]
    output_of(["cmake", "-S", ".", "-B", "build", *compiler, *definitions], folder)
    output_of(["cmake", "--build", "build"], folder)
    return folder / "build"


@pytest.fixture(scope="module")
def fixed_folder() -> Iterator[Path]:
    """Empty, and called the same each time."""
    folder = ROOT / "build" / "outside"
    shutil.rmtree(folder, ignore_errors=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def runs_on_two_ranks(start_job: StartJob, program: Path) -> str:
    job = start_job("-n", "2", "--", str(program), env={"OMP_NUM_THREADS": "1"}, timeout=120)
    assert job.wait() == 0, job.stderr
    return job.stdout


def fitted_the_same(output: str) -> bool:
    """Both ranks of examples/03_libtorch.cc fitted the line, to the same weights."""
    results = dict(re.findall(r"rank (\d) of 2: (fitted, weights .*)", output))
    return set(results) == {"0", "1"} and results["0"] == results["1"]


def test_both_programs_build_with_gyre_as_a_subdirectory(fixed_folder: Path, start_job: StartJob) -> None:
    project = SUBDIRECTORY.replace("/path/to/gyre", str(ROOT)) + (
        "add_executable(average average.cc)\ntarget_link_libraries(average PRIVATE gyre::gyre)\n"
    )
    files = {"CMakeLists.txt": project, "average.cc": README_PROGRAM, "train.cc": LIBTORCH_PROGRAM}
    source = write(fixed_folder / "subdirectory", files)
    # Without optimisation, which costs time and shows nothing here.
    programs = build(source, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0")
    runs_on_two_ranks(start_job, programs / "average")
    assert fitted_the_same(runs_on_two_ranks(start_job, programs / "train"))
    assert not list((programs / "gyre").rglob("*_test")), "tests of Gyre were built within somebody else's project"
