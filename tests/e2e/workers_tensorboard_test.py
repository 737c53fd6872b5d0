"""TensorBoard for a session: it answers at its URL, and does not outlive the session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running_job import wait_until

PACKAGE = Path(__file__).resolve().parents[2] / "python"
SESSION = """
import sys, urllib.request
from gyre.workers import tensorboard
url, process = tensorboard(sys.argv[1])
print(process, urllib.request.urlopen(url + "data/environment").status, flush=True)
sys.stdin.read()
"""


def start(*command: str) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *command], env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_tensorboard_runs_as_long_as_the_session(tmp_path: Path, end: str) -> None:
    session = start("-c", SESSION, str(tmp_path / "appears-later"))
    assert session.stdout is not None
    process, status = session.stdout.readline().split()
    assert status == "200"
    if end == "kill":
        session.send_signal(signal.SIGKILL)
    session.communicate(timeout=60)
    wait_until("TensorBoard has ended", lambda: not Path(f"/proc/{process}").exists())


def test_a_fork_of_the_session_leaves_tensorboard_alone(tmp_path: Path) -> None:
    fork = "import os\nif os.fork() == 0: sys.exit()\nos.wait()\n"
    again = 'print(urllib.request.urlopen(url + "data/environment").status, flush=True)\n'
    session = start("-c", SESSION.replace("sys.stdin.read()\n", fork + again), str(tmp_path))
    output, errors = session.communicate(timeout=60)
    assert output.splitlines()[1:] == ["200"], errors


def test_a_python_without_tensorboard_says_so() -> None:
    session = start("-S", "-c", "from gyre.workers import tensorboard; tensorboard('x')")
    _, errors = session.communicate(timeout=60)
    assert errors.splitlines()[-1].endswith(f"{sys.executable} has no TensorBoard: pip install tensorboard")


def test_a_tensorboard_that_does_not_start_shows_what_it_said(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "__init__.py").touch()
    (tmp_path / "tensorboard" / "main.py").write_text("raise SystemExit('no port is free')")
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    script = f"import os; os.environ['PYTHONPATH'] += ':{tmp_path}'; {path}; from gyre.workers import tensorboard; "
    session = start("-c", script + "tensorboard('x')")
    _, errors = session.communicate(timeout=60)
    assert errors.endswith("TensorBoard ended with exit code 1\n  no port is free\n"), errors
