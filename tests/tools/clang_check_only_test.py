"""`./dev lint` has Clang look at every file without generating code or linking."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_programs("clang++-19")

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "tools" / "dev" / "clang_check_only"
WITHOUT_LOCK = """
struct __attribute__((capability("mutex"))) Mutex {};
Mutex mutex;
int number __attribute__((guarded_by(mutex)));
int read() { return number; }
"""


def check(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "a.cc").write_text(text)
    command = [str(LAUNCHER), "clang++-19", "-Werror", "-Wthread-safety", *options]
    return subprocess.run(
        [*command, "-o", "a.o", "-c", "a.cc"], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_mistake_is_an_error_and_leaves_no_object(tmp_path: Path) -> None:
    done = check(tmp_path, WITHOUT_LOCK)
    assert done.returncode == 1
    assert "reading variable 'number' requires holding mutex 'mutex'" in done.stderr
    assert not (tmp_path / "a.o").exists()


def test_a_good_file_leaves_an_empty_object_and_its_headers(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("")
    done = check(tmp_path, '#include "a.h"\nint one() { return 1; }\n', "-MD", "-MF", "a.d")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a.o").read_bytes() == b""
    assert "a.h" in (tmp_path / "a.d").read_text()


def test_what_would_be_linked_is_a_program_without_a_word(tmp_path: Path) -> None:
    """CMake asks the programs of tests for their names, and other targets wait for that."""
    (tmp_path / "a.o").write_bytes(b"")
    subprocess.run([str(LAUNCHER), "clang++-19", "-o", "tests", "a.o"], cwd=tmp_path, check=True)
    asked = subprocess.run([tmp_path / "tests", "--gtest_list_tests"], capture_output=True, text=True, check=True)
    assert asked.stdout == ""
