"""A worker on this machine: one `gyre run` with one rank, so that nothing that it starts outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gyre.launch.program import find_program

KEEPER = Path(__file__).parent / "_keeper.py"
GRACE_SECONDS = 5


class LocalProcess:
    """`gyre run`, which runs the keeper, which runs the worker's program."""

    def __init__(self, control: str, worker: str) -> None:
        """OSError, NotFoundError if it cannot be started."""
        launcher = [str(find_program()), "run", "-n", "1", "--grace-seconds", str(GRACE_SECONDS), "--"]
        self.popen = subprocess.Popen(
            [*launcher, sys.executable, "-I", "-S", str(KEEPER), control, worker],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "NO_COLOR": "1"},
            start_new_session=True,  # A Ctrl-C is for the session, which decides what to stop.
        )

    def stop(self) -> None:
        self.popen.terminate()

    def kill(self) -> None:
        self.popen.kill()
