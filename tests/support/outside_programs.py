"""C++ programs of somebody else, who knows what docs/guide/cpp.md says and nothing more, and how they are built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guide" / "cpp.md").read_text(encoding="utf-8")
README_PROGRAM = re.findall(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
LIBTORCH_PROGRAM = (ROOT / "examples" / "03_libtorch.cc").read_text(encoding="utf-8")
BUILD_SECONDS = 1500


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


def build_with_cmake(folder: Path, *definitions: str) -> Path:
    """Configures and builds what lies in `folder`; returns the folder of its programs."""
    compiler = ["-G", "Ninja", "-DCMAKE_CXX_COMPILER=g++", f"-DPython_EXECUTABLE={sys.executable}"]
    # Without optimisation, which costs time and shows nothing here.
    compiler += ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0"]
    output_of(["cmake", "-S", ".", "-B", "build", *compiler, *definitions], folder)
    output_of(["cmake", "--build", "build"], folder)
    return folder / "build"


def fitted_the_same(output: str) -> bool:
    """Both ranks of examples/03_libtorch.cc fitted the line, to the same weights."""
    results = dict(re.findall(r"rank (\d) of 2: (fitted, weights .*)", output))
    return set(results) == {"0", "1"} and results["0"] == results["1"]
