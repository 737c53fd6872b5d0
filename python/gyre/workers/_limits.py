"""A worker's limits on cores and memory: a cgroup where this user can make one, else what a process can do itself."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PREFIX = "gyre-worker-"
_CPU_PERIOD_MICROSECONDS = 100_000
_SHORTEST_QUOTA_MICROSECONDS = 1_000  # The kernel's own.
_LONGEST_REMOVAL_SECONDS = 5.0
_BYTES_PER_GB = 1 << 30


@dataclass
class Limits:
    """The limits of one worker. `text` says how they are enforced."""

    cgroups: list[str] = field(default_factory=list)
    memory_cgroup: Path | None = None
    data_bytes: int | None = None
    cores: tuple[int, int] | None = None  # How many, and with which of the usable ones to begin.
    text: str = ""

    def remove(self) -> bool:
        """Ends what is still in the cgroups and removes them, once the worker has ended. True if the kernel has killed
        a process of the worker because of the memory limit."""
        killed = self.memory_cgroup is not None and _has_killed(self.memory_cgroup)
        deadline = time.monotonic() + _LONGEST_REMOVAL_SECONDS
        for folder in map(Path, self.cgroups):
            _remove(folder, deadline)
        self.cgroups = []
        return killed


def make_limits(worker: str, cpu: float, memory: float) -> Limits:
    """`cpu`: cores. `memory`: GB of 2**30 bytes. Makes the cgroups."""
    name = f"{_PREFIX}{os.getpid()}-{worker}"
    limits = Limits()
    size = int(memory * _BYTES_PER_GB)
    limits.memory_cgroup = _limit_memory(name, size)
    quota = max(_SHORTEST_QUOTA_MICROSECONDS, int(cpu * _CPU_PERIOD_MICROSECONDS))
    cpu_cgroup = _limit_cpu(name, quota)
    limits.cgroups = list(dict.fromkeys(str(one) for one in (limits.memory_cgroup, cpu_cgroup) if one is not None))
    if limits.memory_cgroup is not None:
        ways = [f"memory {memory:g} GB by a cgroup"]
    else:
        # Not RLIMIT_AS: address space that is reserved and never used would count.
        limits.data_bytes = size
        ways = [f"memory {memory:g} GB for each process by RLIMIT_DATA, because this user cannot make memory cgroups"]
    if cpu_cgroup is not None:
        ways.append(f"{cpu:g} {_cores(cpu)} by a cgroup")
    else:
        limits.cores = _affinity(worker, cpu)
        ways.append(f"{_shown(limits.cores)} by affinity, because this user cannot make cpu cgroups")
    limits.text = ", ".join(ways)
    return limits


def limits_in_job(worker: str, cpu: float, memory: float) -> Limits:
    """Those that the keeper can set without cgroups."""
    cores = _affinity(worker, cpu)
    text = f"memory {memory:g} GB for each process by RLIMIT_DATA, {_shown(cores)} by affinity, as in every job"
    return Limits(data_bytes=int(memory * _BYTES_PER_GB), cores=cores, text=text)


def limits_in_container(cpu: float, memory: float) -> Limits:
    """Those of its job, which the kernel enforces."""
    cores = cores_in_container(cpu)
    return Limits(text=f"memory {memory:g} GB, {cores} {_cores(cores)} by the container's cgroup")


def cores_in_container(cpu: float) -> int:
    """A container has whole cores."""
    return min(os.cpu_count() or 1, math.ceil(cpu))


def _affinity(worker: str, cpu: float) -> tuple[int, int]:
    count = min(os.cpu_count() or 1, math.ceil(cpu))
    return count, int(re.sub(r"\D", "", worker) or 0) * count


def _shown(cores: tuple[int, int]) -> str:
    return f"{cores[0]} {_cores(cores[0])}"


def _cores(count: float) -> str:
    return "core" if count == 1 else "cores"


def lacking_controllers() -> list[str]:
    """Those of "cpu" and "memory" with which this user can make no cgroup. It is tried."""
    name = f"{_PREFIX}{os.getpid()}-look"
    made = {"cpu": _limit_cpu(name, _CPU_PERIOD_MICROSECONDS), "memory": _limit_memory(name, _BYTES_PER_GB)}
    for folder in made.values():
        if folder is not None:
            _remove(folder, time.monotonic() + _LONGEST_REMOVAL_SECONDS)
    return [controller for controller, folder in made.items() if folder is None]


def remove_stale_cgroups() -> None:
    """Removes the empty cgroups of sessions that were killed."""
    for parent in {*_parents("memory"), *_parents("cpu")}:
        for folder in parent.glob(f"{_PREFIX}*"):
            process = folder.name.removeprefix(_PREFIX).split("-")[0]
            if process.isdigit() and not Path("/proc", process).exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _limit_memory(name: str, size: int) -> Path | None:
    for parent in filter(_is_usable, _parents("memory")):
        folder = _make(parent / name, {"memory.max": str(size)}) or _make(
            parent / name, {"memory.limit_in_bytes": str(size)}
        )
        if folder is not None:
            # Without these, what exceeds the limit would go to swap. Not every kernel has them.
            for file, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(size))):
                if (folder / file).exists():
                    with contextlib.suppress(OSError):
                        (folder / file).write_text(value)
            return folder
    return None


def _limit_cpu(name: str, quota: int) -> Path | None:
    for parent in filter(_is_usable, _parents("cpu")):
        folder = _make(parent / name, {"cpu.max": f"{quota} {_CPU_PERIOD_MICROSECONDS}"}) or _make(
            parent / name, {"cpu.cfs_period_us": str(_CPU_PERIOD_MICROSECONDS), "cpu.cfs_quota_us": str(quota)}
        )
        if folder is not None:
            return folder
    return None


def _make(folder: Path, settings: dict[str, str]) -> Path | None:
    """The cgroup with these settings; None if this user cannot make it there or it has no such controller."""
    was_there = folder.exists()
    try:
        folder.mkdir(exist_ok=True)
        for file, value in settings.items():
            if not (folder / file).exists():
                raise FileNotFoundError(folder / file)
            (folder / file).write_text(value)
    except OSError:
        if not was_there:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return None
    return folder


@functools.cache
def _is_usable(parent: Path) -> bool:
    """Whether this user may make a cgroup there and move a process into it. In the second version of cgroups that also
    depends on the cgroup that the two places have in common, so it is tried."""
    trial = parent / f"{_PREFIX}{os.getpid()}-trial-{threading.get_ident()}"
    try:
        trial.mkdir()
    except OSError:
        return False
    try:
        move = ["sh", "-c", 'echo 0 > "$0/cgroup.procs"', str(trial)]
        return subprocess.run(move, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    finally:
        _remove(trial, time.monotonic() + _LONGEST_REMOVAL_SECONDS)


def _parents(controller: str) -> Iterator[Path]:
    """Where a cgroup with this controller could be made: first in this process's own, then in those around it."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, place, kind, options, *_ in mounts:
        if kind == "cgroup" and controller in options.split(","):
            paths = [path for _, names, path in own if controller in names.split(",")]
        elif kind == "cgroup2":
            paths = [path for number, _, path in own if number == "0"]
        else:
            continue
        for path in paths:
            # A container may see a path that is outside of its mount, with "..".
            inside = [] if ".." in Path(path).parts else [Path(path), *Path(path).parents]
            folders = dict.fromkeys([*(Path(place + str(one)) for one in inside), Path(place)])
            yield from (folder for folder in folders if (folder / "cgroup.procs").exists())


def _has_killed(folder: Path) -> bool:
    for file in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError):
            found = re.search(r"^oom_kill (\d+)$", (folder / file).read_text(), re.MULTILINE)
            if found and int(found[1]) > 0:
                return True
    return False


def _remove(folder: Path, deadline: float) -> None:
    while folder.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            for process in map(int, (folder / "cgroup.procs").read_text().split()):
                if process > 0:  # 0: it belongs to a PID namespace around ours; as a number it would be us.
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(process, 9)
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.005)  # The kernel is still removing a process that has just ended.
