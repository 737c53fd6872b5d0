"""The shells themselves complete `gyre` with what `gyre completion` wrote, options of both languages' parsers alike."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python"
LONGEST_SECONDS = 60
# How a shell moves the cursor.
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")

# What is typed, and what must be offered. The last word is completed.
CASES = [
    ("gyre ", ["run", "bench", "doctor", "completion"]),
    ("gyre run --log-", ["--log-dir", "--log-level"]),
    ("gyre bench all", ["allreduce"]),
    ("gyre job ", ["submit", "logs", "why", "download"]),
    ("gyre job submit --fol", ["--follow"]),
    ("gyre cluster create --output ", ["json", "table", "yaml"]),
    ("gyre bench allreduce --si", ["--sizes"]),
    ("gyre bench allreduce --output ", ["json", "table"]),
    ("gyre explain --out", ["--output"]),
    ("gyre doctor --no", ["--no-self-test"]),
    ("gyre completion ", ["bash", "zsh", "fish"]),
    ("gyre-cifar10 --augment ", ["flip", "shift"]),
    ("gyre-cifar10 --lr 0.1 --out", ["--output-dir"]),
    ("gyre-cosmoflow --ker", ["--kernel-size"]),
    ("gyre run --log-dir fol", ["folder/"]),
    ("gyre run -n 4 -- python tra", ["train.py"]),
]


@pytest.fixture(scope="module")
def environment(gyre: Path) -> dict[str, str]:
    path = f"{gyre.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(PACKAGE), "GYRE_PYTHON": sys.executable, "TERM": "xterm"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "train.py").touch()
    return tmp_path


def answer_of(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, check=False, timeout=LONGEST_SECONDS
    )


def script(gyre: Path, shell: str, environment: dict[str, str], folder: Path) -> Path:
    done = answer_of([str(gyre), "completion", shell], folder, environment)
    assert (done.returncode, done.stderr) == (0, "")
    path = folder / f"completion.{shell}"
    path.write_text(done.stdout)
    return path


def offered_by_bash(source: Path, typed: str) -> str:
    words = [*shlex.split(typed), *([""] if typed.endswith(" ") else [])]
    asked = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _gyre"
    return f"source {source}; {asked}; printf '%s\\n' \"${{COMPREPLY[@]}}\""


def test_bash_completes(gyre: Path, environment: dict[str, str], place: Path) -> None:
    source = script(gyre, "bash", environment, place)
    for typed, expected in CASES:
        command = ["bash", "--norc", "-c", offered_by_bash(source, typed)]
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, env=environment, check=False, timeout=60
        )
        assert done.stderr == "", typed
        offered = {word.rstrip("/") for word in done.stdout.splitlines()}
        assert {word.rstrip("/") for word in expected} <= offered, typed
        assert "--agent" not in offered, "an option that is hidden from people"


@pytest.mark.needs_programs("fish")
def test_fish_completes_with_descriptions(gyre: Path, environment: dict[str, str], place: Path) -> None:
    source = script(gyre, "fish", environment, place)
    for typed, expected in CASES:
        command = ["fish", "--no-config", "-c", f"source {source}; complete -C {shlex.quote(typed)}"]
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, env=environment, check=False, timeout=60
        )
        assert done.stderr == "", typed
        offered = dict(line.partition("\t")[::2] for line in done.stdout.splitlines())
        assert set(expected) <= offered.keys(), typed
    assert "ranks" in offered_by_fish(source, environment, "gyre run --ranks")


def offered_by_fish(source: Path, environment: dict[str, str], typed: str) -> str:
    command = ["fish", "--no-config", "-c", f"source {source}; complete -C {shlex.quote(typed)}"]
    return answer_of(command, source.parent, environment).stdout


class Zsh:
    """One at a terminal: its completion works nowhere else."""

    def __init__(self, source: Path, folder: Path, environment: dict[str, str]) -> None:
        self._terminal, child = pty.openpty()
        self._process = subprocess.Popen(
            ["zsh", "-f", "-i"], cwd=folder, stdin=child, stdout=child, stderr=child, env=environment, close_fds=True
        )
        os.close(child)
        setup = f"PS1=; autoload -Uz compinit; compinit -u -D; source {source}; bindkey '^I' list-choices"
        self._type(f"{setup}; print -r -- rea''dy\n")
        self._wait_for(["ready"])

    def offers(self, typed: str, expected: list[str]) -> bool:
        """Whether Tab lists all of them. It lists nothing while more is typed, so that waits."""
        self._type(f"{typed}\t")
        if not self._wait_for(expected):
            return False
        self._type("\x15print -r -- do''ne\n")
        return self._wait_for(["done"])

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _wait_for(self, words: list[str]) -> bool:
        """Until each is there as a word of its own."""
        self.text, until = "", time.monotonic() + LONGEST_SECONDS
        while not all(re.search(rf"(?<![\w-]){word}(?![\w-])", ESCAPE.sub(" ", self.text)) for word in words):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._terminal], [], [], left)[0]:
                return False
            self.text += os.read(self._terminal, 65536).decode(errors="replace")
        return True

    def end(self) -> None:
        os.close(self._terminal)
        self._process.kill()
        self._process.wait()


@pytest.mark.needs_programs("zsh")
def test_zsh_completes_with_descriptions(gyre: Path, environment: dict[str, str], place: Path) -> None:
    zsh = Zsh(script(gyre, "zsh", environment, place), place, environment)
    try:
        for typed, expected in CASES:
            assert zsh.offers(typed, expected), (typed, zsh.text)
            assert "has no" not in zsh.text, zsh.text
    finally:
        zsh.end()


def test_a_shell_that_there_is_not_is_one_clear_error(gyre: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [str(gyre), "completion", "csh"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 2
    assert "csh" in done.stderr.splitlines()[0]
