"""Starts the programs that are measured, and collects the figures that their rank 0 writes.

Everything runs under `gyre run`, the peers too: whatever ends the benchmark, none of their processes stays behind.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gyre.bench.errors import BenchError, UsageError

PROGRAM_TIMEOUT_SECONDS = 900
_GRACE_SECONDS = 1
_LAST_WORDS = 2000

Figures = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the ranks of one run are."""

    ranks: int

    @property
    def threads(self) -> int:
        """Of each rank's own computation: its share of the cores."""
        return max(1, (os.cpu_count() or 1) // self.ranks)


def program(name: str) -> Path:
    """One of Gyre's programs: beside the one that was called, beside this Python, or in PATH. UsageError if nowhere."""
    candidates = [Path(sys.executable).parent / name]
    called = os.environ.get("GYRE_PROGRAM")
    if called:
        candidates.insert(0, Path(called).resolve().parent / name)
    found = shutil.which(name)
    if found:
        candidates.append(Path(found).resolve())
    gyre = shutil.which("gyre")
    if gyre:
        candidates.append(Path(gyre).resolve().parent / name)
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise UsageError(
        f"there is no {name} beside {sys.executable} nor in PATH; install the package gyre-train, or run `./dev build` "
        "in a checkout and call `./dev bench`"
    )


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs a rank written in Python."""
    return [sys.executable, "-P", "-m", f"gyre.bench.ranks.{name}", *arguments]


def why_no_openmpi() -> str | None:
    """What Open MPI lacks here; None when it can be measured."""
    if shutil.which("mpirun") is None:
        return "there is no mpirun in PATH"
    if importlib.util.find_spec("mpi4py") is None:
        return f"{sys.executable} has no mpi4py"
    return None


class Launcher:
    """Runs programs one after the other, with a folder for their files that is gone afterwards."""

    def __init__(self, scratch: Path, *, verbose: bool) -> None:
        self.scratch = scratch
        self._verbose = verbose
        self._runs = 0
        self.notes: list[str] = []  # What the reader of the figures must know.

    def note(self, what: str) -> None:
        if what not in self.notes:
            self.notes.append(what)

    def say(self, what: str) -> None:
        """Progress, for a person who watches."""
        if self._verbose:
            print(f"gyre bench: {what}", file=sys.stderr, flush=True)

    def file(self, name: str) -> Path:
        """A path that no run has used yet."""
        self._runs += 1
        return self.scratch / f"{self._runs}-{name}"

    def ranks(self, place: Place, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Figures:
        """Runs `command` on every rank of `place` and returns what rank 0 wrote. BenchError when it fails."""
        result = self.file("result.json")
        full = [*command, "--result", str(result)]
        threads = {"OMP_NUM_THREADS": str(place.threads)}
        run = [str(program("gyre")), "run", "-n", str(place.ranks), "--grace-seconds", str(_GRACE_SECONDS), "--"]
        return self._run([*run, *full], {**threads, **(environment or {})}, result)

    def mpi(self, place: Place, command: Sequence[str]) -> Figures:
        """ranks(), under Open MPI's own launcher."""
        result = self.file("result.json")
        mpirun = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        full = [*mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(place.ranks), *command]
        run = [str(program("gyre")), "run", "-n", "1", "--grace-seconds", str(_GRACE_SECONDS), "--"]
        environment = {"OMP_NUM_THREADS": str(place.threads)}
        return self._run([*run, *full, "--result", str(result)], environment, result)

    def _run(self, command: Sequence[str], environment: Mapping[str, str], result: Path) -> Figures:
        log = self.file("output.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                # torch makes a folder for its compiler, which has no part in this, wherever it is told.
                env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(self.scratch / "torch"), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches this process alone, which then ends the programs in good order.
                start_new_session=True,
            )
            try:
                code = process.wait(PROGRAM_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                raise BenchError(f"{_shown(command)}\ndid not end within {PROGRAM_TIMEOUT_SECONDS} s") from None
            finally:
                _end(process)
        if code != 0 or not result.exists():
            words = log.read_text(errors="replace")[-_LAST_WORDS:].strip()
            raise BenchError(f"{_shown(command)}\nended with {code} and no result:\n{words}")
        figures: Figures = json.loads(result.read_text())
        return figures


def _shown(command: Sequence[str]) -> str:
    return " ".join(command)


def _end(process: subprocess.Popen[bytes]) -> None:
    """`gyre run` ends its ranks when it is told to; its guardian does when it is killed."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10 * _GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Interrupted(BaseException):
    """A signal asked the benchmark to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def launcher(*, verbose: bool) -> Iterator[Launcher]:
    """A Launcher whose programs and files are gone at the end of the block, also when SIGINT, SIGTERM or SIGHUP comes;
    these raise Interrupted."""

    def interrupt(number: int, _: object) -> None:
        raise Interrupted(number)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        with tempfile.TemporaryDirectory(prefix="gyre-bench-") as scratch:
            yield Launcher(Path(scratch), verbose=verbose)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
