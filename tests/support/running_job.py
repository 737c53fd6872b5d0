"""A `gyre run` that a test watches from outside."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

LONGEST_WAIT_SECONDS = 60.0


def wait_until(what: str, condition: Callable[[], bool], seconds: float = LONGEST_WAIT_SECONDS) -> None:
    """Looks again and again until `condition` holds; fails the test with `what` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(0.005)


class Job:
    """A running `gyre run`. All that it starts carries a variable of its own, by which it is found in /proc."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float) -> None:
        self.marker = f"GYRE_TEST_JOB={uuid.uuid4().hex}"
        name, value = self.marker.split("=")
        self.timeout = timeout
        self.stdout_path = folder / f"stdout-{value}"
        self.stderr_path = folder / f"stderr-{value}"
        with self.stdout_path.open("wb") as out, self.stderr_path.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **environment, name: value},
                # A shell that starts the tests in the background has SIGINT ignored, and children inherit that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
            )

    @property
    def stdout(self) -> str:
        return self.stdout_path.read_text(encoding="utf-8", errors="surrogateescape")

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text(encoding="utf-8", errors="surrogateescape")

    def wait(self) -> int:
        """The exit code."""
        # Not Popen.wait(), which looks at growing intervals: some tests measure the time.
        pidfd = os.pidfd_open(self.process.pid)
        try:
            if not select.select([pidfd], [], [], self.timeout)[0]:
                pytest.fail(f"gyre run did not end within {self.timeout} s; stderr:\n{self.stderr}")
        finally:
            os.close(pidfd)
        return self.process.wait()

    def rank_pids(self, ranks: int) -> list[int]:
        """Needs --verbose; waits until all ranks are started."""
        pattern = re.compile(r"rank (\d+) is process (\d+)$", re.MULTILINE)
        wait_until(f"{ranks} ranks started", lambda: len(pattern.findall(self.stderr)) == ranks)
        return [int(pid) for _, pid in sorted(pattern.findall(self.stderr), key=lambda found: int(found[0]))]

    def processes(self) -> list[str]:
        """The job's processes that are alive now, the launcher and its guardian included: "pid command line"."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self.marker.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append(f"{entry.name} {command}".strip())
            except OSError:
                continue  # It has just ended, or belongs to somebody else.
        return found

    def end(self) -> None:
        for process in self.processes():
            try:
                os.kill(int(process.split()[0]), signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(self.timeout)


StartJob = Callable[..., Job]


def block_of(job: Job) -> dict[str, str]:
    """The closing block's title and rows; fails when there is not exactly one."""
    titles = re.findall(r"^gyre run: rank .* failed first.*$", job.stderr, re.MULTILINE)
    assert len(titles) == 1, job.stderr
    rows = job.stderr.split(titles[0])[1]
    names = ("your line", "error", "host", "pid", "likely cause", "others", "before it", "log file")
    found = {name: re.search(rf"^  {name} +(.*)$", rows, re.MULTILINE) for name in names}
    return {"title": titles[0], **{name: match[1] for name, match in found.items() if match}}
