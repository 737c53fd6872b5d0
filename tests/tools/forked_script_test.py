"""A test whose program is a fork must see what it would see of `python -c`: output, exit code and signal. A fork
leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_script import PROGRAM, templates
from running_job import wait_until


@pytest.fixture(scope="module")
def forked_script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    folder = tmp_path_factory.mktemp("templates")
    with templates(folder, os.environ, ["json"]):
        yield [sys.executable, "-S", "-E", PROGRAM, str(folder)]


SCRIPT = """
import os, signal, sys
print(__name__, sys.argv, os.getcwd(), sys.flags.hash_randomization, os.environ["GIVEN"], flush=True)
print(os.read(int(os.environ["GYRE_KEY_FD"]), 10), repr(sys.stdin.read()), file=sys.stderr, flush=True)
{end}
"""


@pytest.mark.parametrize(
    ("end", "code", "last"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise ValueError('a bad image')", 1, "ValueError: a bad image"),
        ("os.kill(os.getpid(), signal.SIGUSR1)", -signal.SIGUSR1, ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_a_fork_shows_what_the_script_shows(
    forked_script: list[str], tmp_path: Path, end: str, code: int, last: str
) -> None:
    shown = []
    for command in ([sys.executable, "-c"], forked_script):
        reading, writing = os.pipe()
        os.write(writing, b"the key")
        done = subprocess.run(
            [*command, SCRIPT.format(end=end)],
            cwd=tmp_path,
            env={**os.environ, "GIVEN": "this", "GYRE_KEY_FD": str(reading)},
            pass_fds=[reading],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        os.close(reading)
        os.close(writing)
        errors = done.stderr.splitlines()
        shown.append((done.returncode, done.stdout, errors[0], errors[-1] if last else errors[1:]))
    assert shown[1] == shown[0]
    assert shown[1][0] == code
    assert shown[1][2] == "b'the key' ''"
    assert shown[1][3] == (last or [])


def test_a_fork_ends_with_the_process_that_asked_for_it(forked_script: list[str]) -> None:
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
    with subprocess.Popen([*forked_script, script], stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        fork = Path("/proc", asker.stdout.readline().strip())
        assert fork.exists()
        asker.kill()
    wait_until("the fork has gone", lambda: not fork.exists())
