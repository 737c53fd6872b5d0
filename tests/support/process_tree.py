"""This process and those below it, as /proc shows them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
LISTENING = "0A"
# Says to which test, or to which fixture of several, a process belongs (leftovers.py).
TEST_VARIABLE = "GYRE_TEST_ITEM"


def children_of(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):  # It has just ended.
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found.update(map(int, (thread / "children").read_text(encoding="ascii").split()))
    return found


def with_descendants(pids: set[int]) -> Iterator[int]:
    for pid in pids:
        yield pid
        yield from with_descendants(children_of(pid))


def _fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, from the state on; empty for a process that has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].decode("ascii").split()
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Not when it only waits for somebody to ask how it ended."""
    fields = _fields(pid)
    return bool(fields) and fields[0] not in "ZX"


def cpu_seconds() -> float:
    """Of this process, of those below it, and of those that have ended and been waited for by one of them."""
    ticks = 0
    for pid in with_descendants({os.getpid()}):
        fields = _fields(pid)
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_SECOND


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def variable_of(pid: int, name: str) -> str:
    """What it was when the process was started; empty without it."""
    with suppress(OSError):  # It has ended, or is somebody else's.
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(name.encode() + b"="):
                return variable.partition(b"=")[2].decode(errors="replace")
    return ""


def all_processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def listening_ports(pid: int) -> set[int]:
    """The TCP ports on which a process listens."""
    sockets = set()
    with suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                sockets.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    ports = set()
    for table in ("tcp", "tcp6") if any(name.startswith("socket:") for name in sockets) else ():
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and f"socket:[{fields[9]}]" in sockets:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports
