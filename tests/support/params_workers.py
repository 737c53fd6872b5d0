"""The workers and servers of a job whose workers do one command after the other, for tests of parameter servers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from job_environment import job_environment
from rank_template import ForkedRank, RankTemplate

RANK = Path(__file__).resolve().parent / "params_rank.py"
PACKAGE = Path(__file__).resolve().parents[2] / "python"
LONGEST_SECONDS = 100.0
WORKERS = 3


class Ranks:
    """A job's workers and servers, without a launcher."""

    def __init__(self, template: RankTemplate, gyre: Path, folder: Path, servers: int, commands: Path) -> None:
        self.folder = folder
        self.workers: list[ForkedRank] = []
        self.servers: list[subprocess.Popen[bytes]] = []
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
        common = {**inherited, "PYTHONPATH": str(PACKAGE), "GYRE_TEST_COMMANDS": str(commands)}
        with job_environment(WORKERS + servers, servers) as (variables, descriptors):
            for rank, (own, inherit) in enumerate(zip(variables, descriptors, strict=True)):
                with (folder / f"rank.{rank}").open("wb") as output:
                    if rank < WORKERS:
                        call = [str(RANK), "main"]
                        self.workers.append(template.fork(call, common | own, folder, output, inherit))
                        continue
                    numbers = {name: str(descriptor) for name, descriptor in inherit.items()}
                    self.servers.append(
                        subprocess.Popen(
                            [gyre, "parameter-server"], env=common | own | numbers, pass_fds=list(inherit.values()),
                            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                        )
                    )  # fmt: skip

    @property
    def output(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("rank.*")))

    def wait(self) -> list[int]:
        """All exit codes: of the workers, and then of the servers."""
        until = time.monotonic() + LONGEST_SECONDS
        for worker in self.workers:
            if not worker.ended_within(max(0.0, until - time.monotonic())):
                worker.send_signal(signal.SIGABRT)
        codes = [worker.wait() for worker in self.workers]
        for server in self.servers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(max(1.0, until - time.monotonic()))
        for server in self.servers:
            server.kill()
        return [*codes, *(server.wait() for server in self.servers)]


class Workers:
    """The job's workers, each of which does one command after the other."""

    def __init__(self, template: RankTemplate, gyre: Path, folder: Path, servers: int) -> None:
        path = folder / "commands"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(LONGEST_SECONDS)
            self.job = Ranks(template, gyre, folder, servers, path)
            self.commands: dict[int, Any] = {}
            self.answers: dict[int, Any] = {}
            while len(self.answers) < WORKERS:
                connection, _ = listener.accept()
                connection.settimeout(LONGEST_SECONDS)
                answers = connection.makefile("r", encoding="utf-8")
                worker = json.loads(answers.readline())
                self.answers[worker] = answers
                self.commands[worker] = connection.makefile("w", encoding="utf-8")
                connection.close()  # The files have it as well.

    def tell(self, worker: int, command: dict[str, Any]) -> None:
        self.commands[worker].write(json.dumps(command) + "\n")
        self.commands[worker].flush()

    def hear(self, worker: int) -> dict[str, Any] | None:
        """Nothing of one that has died."""
        try:
            line = self.answers[worker].readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None
