"""The errors of run_cluster."""

from __future__ import annotations

from typing import Any

from gyre.errors import Error

Failure = dict[str, Any]

_SHOWN_LINES = 8


class ClusterError(Error):
    """A cluster of workers failed; nothing of it is left running. `failures` has an entry for each task that failed by
    itself: {id, role, index, phase, status, exit_code, signal, host, last_log_lines, message}. `phase` is launch,
    schedule, start, connect, run or timeout."""

    code = "CLUSTER_FAILED"

    def __init__(self, message: str, failures: list[Failure]) -> None:
        super().__init__(message)
        self.failures = failures

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.failures)


class ClusterStartError(ClusterError):
    """Not all tasks of the cluster were ready in time."""

    code = "CLUSTER_NOT_STARTED"


class ClusterRunError(ClusterError):
    """A task failed after the cluster had started."""

    code = "CLUSTER_FAILED"


def message_of(what: str, failures: list[Failure]) -> str:
    """The first failure in full, the others by name."""
    first = failures[0]
    text = f"{what}: {first['role']} {first['index']} on {first['host']}: {first['message']}"
    others = [f"{each['role']} {each['index']} ({each['phase']}: {each['message']})" for each in failures[1:]]
    if others:
        text += f"\nalso failed: {'; '.join(others[:_SHOWN_LINES])}"
        if len(others) > _SHOWN_LINES:
            text += f" and {len(others) - _SHOWN_LINES} more"
    lines = first["last_log_lines"][-_SHOWN_LINES:]
    if lines:
        text += f"\nlast output of {first['role']} {first['index']}:\n" + "\n".join(f"  {line}" for line in lines)
    return text
