"""What a session knows about one of its workers."""

from __future__ import annotations

import collections
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gyre.workers._limits import Limits

ENDED = ("succeeded", "failed", "timedout", "stopped")
_KEPT_LINES = 20
UNKNOWN = "unknown"


@dataclass(frozen=True)
class JobPlace:
    """A job server, as gyre.jobs.Client names it (None: the one that the commands of `gyre` find), and one of its
    clusters; None: the only one."""

    server: str | None
    cluster: str | None = None


@dataclass(frozen=True)
class Container:
    """Of a worker that is a job. `settings`: as "containerSettings" of a job file. `folder`: one of this machine that
    the cluster mounts under the name `mount`, and that the container shows under its own path; empty: none."""

    settings: Mapping[str, Any]
    folder: str
    mount: str


@dataclass(frozen=True)
class Request:
    """What to launch. `command`: None for a worker that waits until it is stopped. `label`: in front of its output."""

    command: Sequence[str] | None
    environment: Mapping[str, str]
    cpu: float
    memory: float
    gpus: int = 0
    ssh: bool = True
    name: str = "worker"
    role: str = "worker"
    index: int = 0
    label: str | None = None
    task: tuple[str, str] | None = None  # Of run_cluster: the framework and the module; in place of `command`.
    place: JobPlace | None = None  # None: on this machine.
    python: str = sys.executable
    container: Container | None = None  # None: on the machine itself.


class Process(Protocol):
    """A worker's programs, wherever they run."""

    def stop(self) -> None:
        """Asks them to end, and kills them after a grace period. Does not wait."""

    def kill(self) -> None:
        """Kills them. Does not wait."""


@dataclass
class Worker:
    """Guarded by its session's lock."""

    id: str
    request: Request
    address: str
    label: str
    # scheduling (a job that waits for a node), starting, running, then one of ENDED.
    status: str = "starting"
    ssh_port: int | None = None
    gpus: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    process: Process | None = None
    process_id: int | None = None
    asked_to_stop: bool = False
    has_node: bool = True  # False: a job that waits for one.
    was_running: bool = False
    exit_code: int | None = None
    signal: str | None = None
    message: str = ""
    lines: collections.deque[str] = field(default_factory=lambda: collections.deque(maxlen=_KEPT_LINES))
    launcher_lines: collections.deque[str] = field(default_factory=lambda: collections.deque(maxlen=_KEPT_LINES))
    # Of run_cluster: what its task has reported. {"phase", "message"} in "failure" if it failed.
    task: dict[str, Any] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def phase(self) -> str:
        """How far it has come."""
        if "failure" in self.task:
            return str(self.task["failure"]["phase"])
        if self.process is None:
            return "launch"
        if not self.has_node:
            return "schedule"
        if self.request.task is None:
            return "run" if self.was_running else "start"
        return "run" if "ready" in self.task else "connect" if "address" in self.task else "start"

    def describe(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "status": self.status,
            "ip_address": self.address if self.was_running or self.status == "running" else UNKNOWN,
            "ssh_port": self.ssh_port,
            "name": self.request.name,
            "role": self.request.role,
            "index": self.request.index,
            "cpu": self.request.cpu,
            "memory": self.request.memory,
            "nvidia_gpu": self.request.gpus,
            "limits": self.limits.text,
            "process_id": self.process_id,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "message": self.message,
        }

    def failure(self, phase: str | None = None, message: str | None = None) -> dict[str, Any]:
        """Its entry in a list of failures."""
        own = self.task.get("failure", {}).get("message") or self.message
        return {
            **self.describe(),
            "phase": phase or self.phase,
            "host": self.address,
            "last_log_lines": list(self.lines or self.launcher_lines),
            "message": message or own or f"it is {self.status}",
        }
