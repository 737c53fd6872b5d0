"""Ranks that need not import torch, which takes longer than most tests: forks of a process that has.

Such a rank is a process of its own like any other, with its own environment, folder, output, threads, exit handlers and
exit code. What it does not show is how a process starts; tests of that ask for fresh ones.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

RANK_MAIN = Path(__file__).parent / "rank_main.py"
LONGEST_START_SECONDS = 300.0


@dataclass
class Outcome:
    """How one rank ended: its exit code, as subprocess gives it, and all it wrote."""

    code: int
    output: str


class Rank(Protocol):
    """As much of subprocess.Popen as a test needs."""

    def ended_within(self, seconds: float) -> bool: ...

    def send_signal(self, number: int) -> None: ...

    def wait(self) -> int:
        """The exit code; a signal's number, negative."""


def outcomes_of(ranks: Sequence[Rank], outputs: Sequence[Path], timeout_s: float) -> list[Outcome]:
    """A rank that is still there when the time is up prints where it hangs, and is killed."""
    until = time.monotonic() + timeout_s
    if not all(rank.ended_within(max(0.0, until - time.monotonic())) for rank in ranks):
        for rank in ranks:
            if not rank.ended_within(0):
                rank.send_signal(signal.SIGABRT)
    codes = [rank.wait() for rank in ranks]
    return [Outcome(code, path.read_text(errors="replace")) for code, path in zip(codes, outputs, strict=True)]


@dataclass
class ForkedRank:
    """One that a template has made."""

    template: RankTemplate
    pid: int
    code: int | None = None

    def ended_within(self, seconds: float) -> bool:
        if self.code is not None:
            return True
        # The template reaps it only when asked to: until then the number is this rank's.
        pidfd = os.pidfd_open(self.pid)
        try:
            return bool(select.select([pidfd], [], [], seconds)[0])
        finally:
            os.close(pidfd)

    def send_signal(self, number: int) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """The exit code; a signal's number, negative."""
        if self.code is None:
            self.code = int(self.template.ask({"wait": self.pid}))
        return self.code


class RankTemplate:
    """The process that is forked. Its random hash seed is that of all its forks: ranks that should differ in the order
    of their sets, as those of a real job do, come from two templates."""

    def __init__(
        self,
        environment: Mapping[str, str],
        where: Callable[[list[str]], Sequence[str]] = lambda command: command,
        imports: Sequence[str] = (),
    ) -> None:
        """`where`: makes of the template's command line one that runs it somewhere, on another host say. `imports`: the
        modules that it imports, in place of rank_main.SLOW_IMPORTS."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-X", "faulthandler", str(RANK_MAIN), "--template", str(theirs.fileno()), *imports]
        with theirs:
            self._process = subprocess.Popen(
                where(command), env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        self._control = ours
        self._control.settimeout(LONGEST_START_SECONDS)

    def fork(
        self,
        call: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        output: BinaryIO,
        descriptors: Mapping[str, int],
    ) -> ForkedRank:
        """`call`: a test file and a function of it. `descriptors`: variables, and which descriptor each is to name."""
        request = {
            "call": list(call),
            "environment": dict(environment),
            "folder": str(folder),
            "descriptors": list(descriptors),
        }
        return ForkedRank(self, int(self.ask(request, [output.fileno(), *descriptors.values()])))

    def ask(self, request: Mapping[str, object], descriptors: list[int] | None = None) -> str:
        socket.send_fds(self._control, [json.dumps(request).encode()], descriptors or [])
        answer = self._control.recv(100).decode()
        assert answer, f"the ranks' template has ended with {self._process.wait()}; its output tells why"
        return answer

    def close(self) -> None:
        self._control.close()
        self._process.wait(LONGEST_START_SECONDS)
