"""Debugging a rank by hand: what is typed at `gyre run` reaches the rank that asks, and nobody else."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_job import LONGEST_WAIT_SECONDS, StartJob, block_of

ASK = 'import os\nif os.environ["RANK"] == "{rank}":\n    print("hello", input("name? "))\n'


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    return tmp_path / "train.py"


class Typist:
    """A program on a terminal of its own, and a person at it."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.main, self.side = pty.openpty()
        self.seen = ""
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=self.side,
            stdout=self.side,
            stderr=self.side,
            env={**os.environ, "TERM": "dumb"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )

    def read_until(self, words: str) -> None:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while words not in self.seen:
            left = deadline - time.monotonic()
            if left < 0 or not select.select([self.main], [], [], left)[0]:
                pytest.fail(f"'{words}' did not appear; on the terminal: {self.seen!r}")
            self.seen += os.read(self.main, 4096).decode(errors="replace").replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self.main, text.encode())

    def wait(self) -> int:
        return self.process.wait(LONGEST_WAIT_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.main)
        os.close(self.side)


@pytest.fixture
def terminal() -> Iterator[list[Typist]]:
    open_ones: list[Typist] = []
    yield open_ones
    for each in open_ones:
        each.close()


def start(terminal: list[Typist], gyre: Path, folder: Path, *words: str) -> Typist:
    terminal.append(Typist([str(gyre), "run", *words], folder))
    return terminal[-1]


def test_pdb_works_in_rank_0_on_a_terminal(terminal: list[Typist], gyre: Path, script: Path, tmp_path: Path) -> None:
    script.write_text(
        'import os\nx = 6\nif os.environ["RANK"] == "0":\n    breakpoint()\nprint("done", os.environ["RANK"])\n'
    )
    job = start(terminal, gyre, tmp_path, "-n", "2", sys.executable, str(script))
    job.read_until("[0] (Pdb) ")
    job.type("p x * 7\n")
    job.read_until("[0] 42\n[0] (Pdb) ")
    job.type("c\n")
    job.read_until("[0] done 0\n")
    job.read_until("[1] done 1\n")
    assert job.wait() == 0
    # What was typed stands behind the prompt, and the prompt does not appear again in front of the answer.
    assert "[0] (Pdb) p x * 7\n[0] 42\n" in job.seen


def test_any_rank_can_be_given_the_terminal(terminal: list[Typist], gyre: Path, script: Path, tmp_path: Path) -> None:
    script.write_text(ASK.format(rank=1))
    job = start(terminal, gyre, tmp_path, "-n", "2", "--stdin", "1", sys.executable, str(script))
    job.read_until("[1] name? ")
    job.type("Ada\n")
    job.read_until("[1] hello Ada\n")
    assert job.wait() == 0


def test_what_is_typed_for_the_shell_stays_there(terminal: list[Typist], gyre: Path, tmp_path: Path) -> None:
    job = start(terminal, gyre, tmp_path, "-n", "2", "sh", "-c", "echo up $RANK; sleep 1")
    job.read_until("[0] up 0\n")
    job.type("ls\n")
    assert job.wait() == 0
    assert select.select([job.side], [], [], 0)[0], "somebody has eaten what was typed"
    assert os.read(job.side, 100) == b"ls\n"


def test_input_from_a_pipe_reaches_the_rank_that_was_chosen(gyre: Path, script: Path, tmp_path: Path) -> None:
    script.write_text(ASK.format(rank=1))
    done = subprocess.run(
        [str(gyre), "run", "-n", "2", "--log-dir", "logs", "--stdin", "1", sys.executable, str(script)],
        cwd=tmp_path,
        input="Ada\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("[1] name? hello Ada\n", "[1] name? \n[1] hello Ada\n")
    assert (tmp_path / "logs" / "rank-1.log").read_text() == "name? hello Ada\n"


def test_a_rank_that_asks_in_vain_says_which_option_helps(start_job: StartJob, script: Path) -> None:
    script.write_text(ASK.format(rank=1))
    job = start_job("-n", "2", sys.executable, str(script))
    assert job.wait() == 1
    assert block_of(job)["your line"] == 'train.py:3: print("hello", input("name? "))'
    assert "`gyre run --stdin 1`" in block_of(job)["likely cause"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-n", "2", "--stdin", "2"], "--stdin is '2'; a whole number from 0 to 1 is needed"),
        (["-n", "2", "--stdin", "all"], "--stdin is 'all'"),
        (["-H", "localhost:2", "--stdin", "1"], "with -H every rank's stdin is empty"),
    ],
)
def test_a_rank_that_cannot_be_given_input_is_refused(start_job: StartJob, options: list[str], words: str) -> None:
    job = start_job(*options, "true", env={"GYRE_PYTHON": sys.executable})
    assert job.wait() == 2
    assert words in job.stderr
