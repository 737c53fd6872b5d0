"""Rows of figures: their contents, how they are shown as tables and written as JSON."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gyre.bench.errors import UsageError

# One figure of Gyre, those of the peers for the same work, and the lower bound: {"bench", "ranks", "bytes",
# "path": "arena" | "tensor", "face": "cpp" | "python", "hosts", "ours_us", "peers": {"gloo_us", "openmpi_us"},
# "bound_us"} and what a bench adds. docs/guide/bench.md has the list.
Row = dict[str, Any]

COLUMNS = (
    "what",
    "ranks",
    "hosts",
    "path",
    "face",
    "ours",
    "GB/s",
    "gloo",
    "/ours",
    "openmpi",
    "/ours",
    "bound",
    "of it",
)

STEP_COLUMNS = (
    "what",
    "ranks",
    "hosts",
    "via",
    "step",
    "own",
    "exposed",
    "gloo's step",
    "exposed",
    "step gloo/ours",
    "exposed gloo/ours",
    "processor",
    "gloo's",
)


JOBS_COLUMNS = (
    "what",
    "jobs/s",
    "of nodes",
    "sbatch",
    "submit",
    "p99",
    "sbatch",
    "first output",
    "sbatch",
    "page of 100",
    "followers",
    "delay p99",
    "submit meanwhile",
    "p99",
    "peak",
    "idle",
)


SERVER_COLUMNS = (
    "what",
    "workers",
    "servers",
    "hosts",
    "step",
    "in other memory",
    "predicted",
    "bound",
    "of it",
    "worker's host sends",
    "server's host sends",
    "server per byte",
    "gloo",
    "/ours",
    "TensorFlow",
    "/ours",
    "allreduce",
)


LOADER_COLUMNS = (
    "what",
    "threads",
    "ours",
    "bound",
    "of it",
    "peer",
    "its rate",
    "ours/peer",
    "first batch",
    "memory",
)


DATA_COLUMNS = ("what", "ours", "bound", "of it", "goal", "peer", "its rate", "ours/peer")


def size_text(size_bytes: float) -> str:
    """ "4 B", "64 KB", "102.2 MB" """
    for unit in ("B", "KB", "MB"):
        if size_bytes < 1024 or unit == "MB":
            return f"{round(size_bytes, 1):g} {unit}"
        size_bytes /= 1024
    raise AssertionError(size_bytes)


def time_text(microseconds: float | None) -> str:
    """In a unit that keeps the text short."""
    if microseconds is None:
        return "-"
    if microseconds < 0:
        return "-" + time_text(-microseconds)
    if microseconds < 1000:
        return f"{microseconds:.1f} us"
    if microseconds < 1e6:
        return f"{microseconds / 1e3:.1f} ms"
    return f"{microseconds / 1e6:.2f} s"


def _ratio_text(peer_us: float | None, ours_us: float) -> str:
    if peer_us is None:
        return "-"
    if ours_us <= 0:  # The exposed time of a step can be lost in noise.
        return "all" if peer_us > 0 else "-"
    return f"{peer_us / ours_us:.2f}" if peer_us < 10 * ours_us else f"{peer_us / ours_us:.1f}"


def _what(row: Row) -> str:
    parts = [str(row[name]) for name in ("model", "operation") if name in row]
    parts.append(size_text(row["bytes"]))
    if "rate" in row:
        parts.append(str(row["rate"]))
    if row.get("tls"):
        parts.append("TLS")
    if "fusion_bytes" in row:
        parts.append(f"fusion {size_text(row['fusion_bytes'])}" if row["fusion_bytes"] else "fusion off")
    if row["bench"] == "step":
        parts.append(f"batch {row['batch']}")
        if row.get("bucket_views") and row["via"] == "ddp":
            parts.append("bucket views")
    if row.get("zero_grad") == "zeros":
        parts.append("into zeros")
    return ", ".join(parts)


def cells(row: Row) -> tuple[str, ...]:
    """One line of the table: COLUMNS."""
    ours: float = row["ours_us"]
    peers: Mapping[str, float | None] = row.get("peers", {})
    gloo, openmpi, bound = peers.get("gloo_us"), peers.get("openmpi_us"), row.get("bound_us")
    rate = f"{row['bytes'] / ours / 1e3:.2f}" if ours > 0 else "-"
    return (
        _what(row), str(row["ranks"]), str(row["hosts"]), str(row["path"]), str(row["face"]), time_text(ours), rate,
        time_text(gloo), _ratio_text(gloo, ours), time_text(openmpi), _ratio_text(openmpi, ours),
        time_text(bound), f"{bound / ours:.0%}" if bound and ours > 0 else "-",
    )  # fmt: skip


def step_cells(row: Row) -> tuple[str, ...]:
    """One line of the table of steps: STEP_COLUMNS."""
    ours: float = row["ours_us"]
    gloo: float | None = row["peers"].get("gloo_us")
    gloo_together: float | None = row["peers_together_us"].get("gloo_us")
    return (
        _what(row), str(row["ranks"]), str(row["hosts"]), str(row["via"]), time_text(row["together_us"]),
        time_text(row["alone_us"]), time_text(ours), time_text(gloo_together), time_text(gloo),
        _ratio_text(gloo_together, row["together_us"]), _ratio_text(gloo, ours),
        time_text(row["processor_us"]), time_text(row["peers_processor_us"].get("gloo_us")),
    )  # fmt: skip


def jobs_cells(row: Row) -> tuple[str, ...]:
    """One line of the table of a job server: JOBS_COLUMNS."""
    slurm: Row = row["peers"].get("sbatch", {})
    rate: float = row["jobs_per_second"]
    bound: float | None = row["bound_jobs_per_second"]
    queued = f", {row['queued']} waiting" if row["queued"] else ""
    return (
        f"{row['jobs']} jobs of {row['seconds']:g} s, {row['nodes']} nodes{queued}", f"{rate:.2f}",
        f"{rate / bound:.0%}" if bound else "-", f"{slurm['jobs_per_second']:.2f}" if slurm else "-",
        time_text(row["submit_us"]), time_text(row["submit_p99_us"]), time_text(slurm.get("submit_us")),
        time_text(row["first_output_us"]), time_text(slurm.get("first_output_us")), time_text(row["page_us"]),
        str(row["followers"]), time_text(row["line_delay_p99_us"]), time_text(row.get("queued_submit_us")),
        time_text(row.get("queued_submit_p99_us")), size_text(row["peak_bytes"]),
        f"{row['idle_core_share']:.2%} of a core",
    )  # fmt: skip


def server_cells(row: Row) -> tuple[str, ...]:
    """One line of the table of parameter servers: SERVER_COLUMNS."""
    ours: float = row["ours_us"]
    bound: float | None = row.get("bound_us")
    gloo: float | None = row["peers"].get("gloo_us")
    tensorflow: float | None = row["peers"].get("tensorflow_us")
    sent: Mapping[str, float] = row.get("sent_bytes", {})
    processor = f"{row['server_ns_per_byte']:.2f} ns" if "server_ns_per_byte" in row else "-"
    parts = [row["architecture"], size_text(row["bytes"]), *([row["rate"]] if "rate" in row else [])]
    return (
        ", ".join(parts), str(row["workers"]), str(row["servers"]), str(row["hosts"]), time_text(ours),
        time_text(row.get("other_memory_us")), time_text(row.get("predicted_us")), time_text(bound),
        f"{bound / ours:.0%}" if bound else "-",
        *(size_text(sent[role]) if sent.get(role) else "-" for role in ("worker", "server")),
        processor, time_text(gloo), _ratio_text(gloo, ours), time_text(tensorflow), _ratio_text(tensorflow, ours),
        time_text(row.get("allreduce_us")),
    )  # fmt: skip


def loader_cells(row: Row) -> list[tuple[str, ...]]:
    """The lines of one case in the table of loaders, one for each peer: LOADER_COLUMNS."""
    ours: float = row["ours_per_second"]
    bound: float | None = row["bound_per_second"]
    figures = (
        row["what"], str(row["threads"]), f"{ours:.0f}/s", f"{bound:.0f}/s" if bound else "-",
        f"{ours / bound:.0%}" if bound else "-",
    )  # fmt: skip
    memory = size_text(row["memory_bytes"]) if "memory_bytes" in row else "-"
    rest = (time_text(1e6 * row["start_s"]) if "start_s" in row else "-", memory)
    lines: list[tuple[str, ...]] = []
    for name, rate in (row["peers_per_second"] or {"-": None}).items():
        versus = (name, f"{rate:.0f}/s", f"{ours / rate:.2f}") if rate else (name, "-", "-")
        lines.append((*figures, *versus, *rest) if not lines else ("", "", "", "", "", *versus, "", ""))
    return lines


def rate_text(value: float | None, unit: str) -> str:
    """ "112.3 MB/s", "20480 reads/s", "2.27 iterations/s", "3.9 x" """
    if value is None:
        return "-"
    if unit == "B/s":
        return f"{value / 1e6:.1f} MB/s" if value < 1e9 else f"{value / 1e9:.2f} GB/s"
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def data_cells(row: Row) -> list[tuple[str, ...]]:
    """The lines of a row of `stage` or `store`, one for each peer: DATA_COLUMNS."""
    ours, bound, unit = row["ours"], row["bound"], row["unit"]
    share = "-"
    if bound and ours > 0:
        share = f"{ours / bound:.0%}"
    goal = "-"
    if row.get("goal") is not None:
        goal = f"{'at most' if unit == 'B/object' else 'at least'} {row['goal']:.0%}"
    elif "goal_value" in row:
        goal = f"at least {rate_text(row['goal_value'], unit)}"
    elif "goal_over_peer" in row:
        goal = f"{row['goal_over_peer']:g} times the peer"
    figures = (row["what"], rate_text(ours, unit), rate_text(bound, unit), share, goal)
    lines: list[tuple[str, ...]] = []
    for name, rate in (row["peers"] or {"-": None}).items():
        versus = (name, rate_text(rate, unit), f"{ours / rate:.2f}" if rate else "-")
        lines.append((*figures, *versus) if not lines else ("", "", "", "", "", *versus))
    return lines


def table(rows: Sequence[Row]) -> str:
    """A table of the rows of one command: Gyre's times and the peers', their ratio (above 1: Gyre is faster), and
    how close Gyre is to the bound; for steps, the times with and without exchange."""
    if rows and rows[0]["bench"] == "step":
        lines = [STEP_COLUMNS, *(step_cells(row) for row in rows)]
    elif rows and rows[0]["bench"] == "jobs":
        lines = [JOBS_COLUMNS, *(jobs_cells(row) for row in rows)]
    elif rows and rows[0]["bench"] == "loader":
        lines = [LOADER_COLUMNS, *(line for row in rows for line in loader_cells(row))]
    elif rows and rows[0]["bench"] in ("stage", "store"):
        lines = [DATA_COLUMNS, *(line for row in rows for line in data_cells(row))]
    elif rows and rows[0]["bench"] == "ps":
        lines = [SERVER_COLUMNS, *(server_cells(row) for row in rows)]
    else:
        lines = [COLUMNS, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def check_writable(path: Path) -> None:
    """UsageError unless the file can be written: reported before minutes of measuring, not after."""
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"--json {path}: its folder cannot be written: {error.strerror}") from error
    if path.is_dir():
        raise UsageError(f"--json {path}: this is a folder")


def write_json(path: Path, rows: object) -> None:
    """Writes the whole file or nothing."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(rows, file, indent=1)
            file.write("\n")
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
