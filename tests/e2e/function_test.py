"""gyre.run() and `gyre doctor`: what a notebook and a newcomer call first."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gyre.errors import InvalidArgumentError

import gyre

PACKAGE = Path(gyre.__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def program(gyre: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYRE_PROGRAM", str(gyre))


def test_results_come_in_the_order_of_the_ranks(capfd: pytest.CaptureFixture[str]) -> None:
    factor = 3

    def place(base: int, *, add: int) -> tuple[int, int]:  # A closure, as in a notebook's cell.
        print("here")
        return base + add + factor * int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])

    assert gyre.run(place, args=(10,), kwargs={"add": 1}, np=3) == [(11, 3), (14, 3), (17, 3)]
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] here", "[1] here", "[2] here"]


SCRIPT = """
import dataclasses
import os
import gyre

FACTOR = 2

@dataclasses.dataclass
class Result:
    rank: int

def helper(rank):
    return FACTOR * rank

def main(base):  # Gyre's own program of a rank has a function of this name.
    return Result(base + helper(int(os.environ["GYRE_RANK"])))

if __name__ == "__main__":
    results = gyre.run(main, args=(1,), np=2)
    assert all(isinstance(result, Result) for result in results)
    print([result.rank for result in results], gyre.run(lambda: os.environ["GYRE_SIZE"], np=2))
"""


def test_a_script_runs_its_own_functions(tmp_path: Path) -> None:
    """Its module is __main__ here and another one in the ranks, which found no such function there, or a wrong one."""
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    command = [sys.executable, "script.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1, 3] ['2', '2']\n"


def test_what_cannot_be_pickled_is_said() -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be sent to other processes"):
        gyre.run(print, args=(threading.Lock(),), np=1)


async def waits() -> int:
    return 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            threading.Lock,
            "the function's result, <unlocked _thread.lock .*cannot pickle '_thread.lock' object",
        ),
        (waits, "coroutine object waits .*; call it in another function, with asyncio.run"),
    ],
)
def test_a_result_that_cannot_be_pickled_is_said(function: Callable[[], Any], words: str) -> None:
    with pytest.raises(gyre.RunError, match=words) as raised:
        gyre.run(function, np=2)
    assert raised.value.rank in (0, 1)


@pytest.mark.parametrize("leave", [sys.exit, lambda: os._exit(0)])
def test_a_rank_that_ends_without_a_result_is_said(leave: Callable[[], Any]) -> None:
    with pytest.raises(gyre.RunError, match=r"rank 0 ended without a result: its function ended the process"):
        gyre.run(leave, np=2)


def test_the_first_failed_ranks_traceback_comes_back() -> None:
    def fail() -> None:
        if os.environ["GYRE_RANK"] == "1":
            raise ArithmeticError("only here")

    with pytest.raises(gyre.RunError, match="rank 1 failed first") as caught:
        gyre.run(fail, np=2)
    assert caught.value.rank == 1
    assert "ArithmeticError: only here" in caught.value.traceback


def test_what_cannot_be_run_is_said_before_anything_starts() -> None:
    with pytest.raises(InvalidArgumentError, match="'train' cannot be called"):
        gyre.run("train", np=2)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="np is '2'; a whole number"):
        gyre.run(print, np="2")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"args is 2; .* the number of ranks is np=2"):
        gyre.run(print, 2)  # type: ignore[arg-type]


def test_the_rank_that_the_launcher_names_is_the_one_that_is_raised(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # Rank 0 raises as ranks do that have lost another, and was said to have failed first; rank 1 was killed, which it
    # cannot tell.
    def lose_one() -> None:
        mark = tmp_path / "pid"
        if os.environ["GYRE_RANK"] == "0":
            (tmp_path / "part").write_text(str(os.getpid()))
            (tmp_path / "part").rename(mark)
            raise ConnectionError("rank 1 is gone")
        while not mark.exists() or Path(f"/proc/{mark.read_text()}/exe").exists():
            time.sleep(0.005)
        os.kill(os.getpid(), 9)

    with pytest.raises(gyre.RunError, match="rank 1 of 2 failed first") as caught:
        gyre.run(lose_one, np=2)
    assert caught.value.rank == 1
    assert "rank 1 of 2 failed first" in capfd.readouterr().out


def test_a_killed_rank_is_told_in_the_launchers_words() -> None:
    def die() -> None:
        os.kill(os.getpid(), 9)

    with pytest.raises(gyre.RunError, match="SIGKILL"):
        gyre.run(die, np=1)


def test_the_doctor_finds_nothing_wrong_here(gyre: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "GYRE_PYTHON": sys.executable}
    done = subprocess.run(
        [str(gyre), "doctor", "-o", "json"], capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["wrong"]) == (0, 0), done.stdout + done.stderr
    assert {finding["name"] for finding in report["findings"]} >= {"engine", "gyre", "torch", "/dev/shm", "two ranks"}
    environment["GYRE_KEY_FILE"] = "/nowhere/key"
    done = subprocess.run(
        [str(gyre), "doctor", "--no-self-test"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )
    assert done.returncode == 1
    assert "chmod 600 /nowhere/key" in done.stdout


def doctor_of_bare_python(gyre: Path, folder: Path, *packages: str) -> tuple[int, dict[str, str]]:
    """Its exit status, and each finding's state, for a Python with these packages only."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "bare")], check=True, timeout=60)
    (folder / "packages").mkdir()
    for package in packages:
        place = Path(str(importlib.util.find_spec(package).origin)).parent
        for found in place.parent.glob(f"{package}*"):
            (folder / "packages" / found.name).symlink_to(found)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{PACKAGE}:{folder / 'packages'}",
        "GYRE_PYTHON": str(folder / "bare" / "bin" / "python"),
    }
    done = subprocess.run(
        [str(gyre), "doctor", "-o", "json"], capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    assert done.stderr == ""
    return done.returncode, {finding["name"]: finding["state"] for finding in json.loads(done.stdout)["findings"]}


def test_the_doctor_without_torch_tries_all_the_same(gyre: Path, tmp_path: Path) -> None:
    status, states = doctor_of_bare_python(gyre, tmp_path, "numpy", "cloudpickle")
    assert (status, states["torch"], states["packages"], states["two ranks"]) == (0, "note", "ok", "ok")


def test_the_doctor_without_a_package_that_gyre_needs_says_which(gyre: Path, tmp_path: Path) -> None:
    status, states = doctor_of_bare_python(gyre, tmp_path, "numpy")
    assert (status, states["torch"], states["packages"], states["two ranks"]) == (1, "note", "wrong", "note")
