"""Runs a function as several ranks: real processes that meet through the environment a launcher would give them."""

import contextlib
import fcntl
import inspect
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

HERE = Path(__file__).parent
PACKAGE = HERE.parent.parent / "python"


@dataclass
class Outcome:
    """How one rank ended: its exit code, as subprocess gives it, and all it wrote."""

    code: int
    output: str


class RunRanks(Protocol):
    def __call__(
        self,
        size: int,
        body: Callable[[], None],
        *,
        timeout_s: float = 120,
        check: bool = True,
        launcher: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> list[Outcome]:
        """Calls `body`, a function of a test file, in `size` processes. `check`: all must succeed. `launcher`: they are
        told of each other."""


@contextlib.contextmanager
def job_environment(size: int) -> Iterator[tuple[list[dict[str, str]], list[int]]]:
    """The variables of each rank, and the file descriptors to hand down."""
    name = f"gyre-test-{secrets.token_hex(8)}"
    key = os.memfd_create("gyre-test-key", os.MFD_ALLOW_SEALING)
    os.write(key, secrets.token_bytes(32))
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(key, fcntl.F_ADD_SEALS, seals)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen(64)
        common = {
            "GYRE_SIZE": str(size),
            "GYRE_LOCAL_SIZE": str(size),
            "GYRE_RENDEZVOUS": f"unix:@{name}",
            "GYRE_KEY_FD": str(key),
            "OMP_NUM_THREADS": "1",
            "GYRE_START_TIMEOUT_SECONDS": "30",
        }
        variables = [{**common, "GYRE_RANK": str(rank), "GYRE_LOCAL_RANK": str(rank)} for rank in range(size)]
        variables[0]["GYRE_RENDEZVOUS_FD"] = str(listener.fileno())
        try:
            yield variables, [key, listener.fileno()]
        finally:
            os.close(key)


@pytest.fixture
def run_ranks(tmp_path: Path) -> RunRanks:
    def run(
        size: int,
        body: Callable[[], None],
        *,
        timeout_s: float = 120,
        check: bool = True,
        launcher: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> list[Outcome]:
        call = [str(HERE / "rank_main.py"), inspect.getfile(body), body.__name__]
        command = [sys.executable, "-X", "faulthandler", *call]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
        inherited["PYTHONPATH"] = str(PACKAGE)
        outputs = [tmp_path / f"{body.__name__}.{size}.{rank}" for rank in range(size)]
        with job_environment(size) as (variables, descriptors):
            processes = [
                subprocess.Popen(
                    command,
                    env={**inherited, **(variables[rank] if launcher else {}), **(environment or {})},
                    pass_fds=descriptors if rank == 0 else descriptors[:1],
                    stdin=subprocess.DEVNULL,
                    stdout=output.open("wb"),
                    stderr=subprocess.STDOUT,
                    cwd=tmp_path,
                )
                for rank, output in enumerate(outputs)
            ]
        outcomes = _wait(processes, outputs, timeout_s)
        if check and any(outcome.code != 0 for outcome in outcomes):
            pytest.fail("\n".join(f"--- rank {r}: exit code {o.code}\n{o.output}" for r, o in enumerate(outcomes)))
        return outcomes

    return run


def _wait(processes: list["subprocess.Popen[bytes]"], outputs: list[Path], timeout_s: float) -> list[Outcome]:
    """A rank that is still there when the time is up prints where it hangs, and is killed."""
    until = time.monotonic() + timeout_s
    try:
        for process in processes:
            process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGABRT)
                process.wait()
    codes = [process.wait() for process in processes]
    return [Outcome(code, path.read_text(errors="replace")) for code, path in zip(codes, outputs, strict=True)]
