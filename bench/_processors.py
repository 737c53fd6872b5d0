"""What the machine's processors did, as Linux counts it."""

from __future__ import annotations

from pathlib import Path

# As in /proc/stat's first line, which goes on with the times of guests; those are counted in "user".
_TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def processor_times() -> list[int]:
    """Of all processors together since the machine started."""
    return [int(time) for time in Path("/proc/stat").read_text().split()[1 : 1 + len(_TIMES)]]


def stolen_share(before: list[int], after: list[int]) -> float:
    """Of the time between two calls of processor_times(): what the hypervisor gave to others while we had work."""
    times = [b - a for a, b in zip(before, after, strict=True)]
    return times[_TIMES.index("steal")] / max(sum(times), 1)
