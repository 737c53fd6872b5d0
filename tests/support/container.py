"""What a container puts around a process: namespaces of its own, another /proc, a small /dev/shm, refused system calls.

A process moves into it by itself (become), so that it can be a fork which has torch already.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from denied_calls import deny

_FLAGS = {"mount": 0x00020000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
_PRIVATE_AND_BELOW = 0x4000 | 0x40000
_SET_PARENT_DEATH_SIGNAL = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Container:
    """`namespaces`: "pid", "mount", "user", "net" (which the process has entered already: enter_network). `proc`:
    "around", as it is outside; "own", of the PID namespace; "hidden". `shared_memory`: "around" or the size of a
    /dev/shm of its own. These two need a mount namespace. `denied`: system calls."""

    namespaces: tuple[str, ...] = ()
    proc: str = "around"
    shared_memory: str = "around"
    denied: tuple[str, ...] = ()

    def text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: str) -> Container:
        values = json.loads(text)
        return Container(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(kind: str, place: str, options: str = "") -> None:
    _check(_libc.mount(kind.encode(), place.encode(), kind.encode(), 0, options.encode()), f"mounting {place}")


def enter_network(namespace: str) -> None:
    """The network namespace of that name (`ip netns`)."""
    with open(f"/run/netns/{namespace}", "rb") as file:
        _check(_libc.setns(file.fileno(), _FLAGS["net"]), f"entering {namespace}")


def _unshare(namespaces: Sequence[str]) -> None:
    if not namespaces:
        return
    user, group = os.geteuid(), os.getegid()
    flags = sum(_FLAGS[name] for name in namespaces)
    _check(_libc.unshare(flags), f"unshare {' '.join(namespaces)}")
    if "user" in namespaces:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _fork_as_first_process() -> None:
    """The first process of a PID namespace is a fork; this one waits for it and ends as it does."""
    child = os.fork()
    if child == 0:
        _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def become(container: Container) -> None:
    """This process, which must have one thread, goes on in the container."""
    _unshare([name for name in container.namespaces if name != "net"])
    if "pid" in container.namespaces:
        _fork_as_first_process()
    if "mount" in container.namespaces:
        _check(_libc.mount(None, b"/", None, _PRIVATE_AND_BELOW, None), "a mount namespace")
        if container.shared_memory != "around":
            _mount("tmpfs", "/dev/shm", f"size={container.shared_memory}")
        if container.proc == "own":
            _mount("proc", "/proc")
        elif container.proc == "hidden":
            _mount("tmpfs", "/proc")
    if container.denied:
        deny(container.denied)
