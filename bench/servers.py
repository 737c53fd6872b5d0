"""How many parameter servers? `gyre bench ps` over simulated hosts, for several numbers of workers and servers and
several rates, with a plot of the time per step over the number of servers (root; Linux)."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _plot import Line, svg

ROOT = Path(__file__).resolve().parent.parent
GYRE = ROOT / "build" / "release" / "bin" / "gyre"
LONGEST_SECONDS = 3600

Row = dict[str, Any]


def _points(rows: Sequence[Row], key: str) -> list[tuple[float, float]]:
    return [(row["servers"], row[key] / 1e6) for row in rows]


def _title(rows: Sequence[Row], more: str) -> str:
    return f"{rows[0]['bytes'] / 1e6:.3g} million bytes of gradients, links of {rows[0]['rate']}, {more}"


def _drawn(title: str, lines: Sequence[Line]) -> str:
    return svg(title, "parameter servers", "seconds per step", lines, lambda count: f"{count:g}", x_base=2)


def workers_plot(rows: Sequence[Row]) -> str:
    """Time per step over the number of dedicated servers, for each number of workers, at one rate."""
    lines = []
    for workers in sorted({row["workers"] for row in rows}):
        about = [row for row in rows if (row["workers"], row["architecture"]) == (workers, "dedicated")]
        lines.append(Line(f"{workers} workers", _points(about, "ours_us")))
        lines.append(Line(f"{workers} workers, predicted", _points(about, "predicted_us"), dashed=True))
    return _drawn(_title(rows, "dedicated servers"), lines)


def architectures_plot(rows: Sequence[Row]) -> str:
    """Time per step over the number of servers, dedicated and colocated, of one number of workers at one rate, with
    allreduce as a level."""
    lines = []
    for placement in ("dedicated", "colocated"):
        about = [row for row in rows if row["architecture"] == placement]
        lines.append(Line(f"{placement} servers", _points(about, "ours_us")))
        lines.append(Line(f"{placement}, predicted", _points(about, "predicted_us"), dashed=True))
    counts = [row["servers"] for row in rows if row["servers"]]
    allreduce = next(row["ours_us"] / 1e6 for row in rows if row["architecture"] == "allreduce")
    lines.append(Line("allreduce", [(count, allreduce) for count in (min(counts), max(counts))]))
    return _drawn(_title(rows, f"{rows[0]['workers']} workers"), lines)


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """For each rate the plot of all numbers of workers, and that of the architectures for the largest."""
    files = []
    for rate in dict.fromkeys(row["rate"] for row in rows):
        about = [row for row in rows if row["rate"] == rate]
        most = max(row["workers"] for row in about)
        of_most = [row for row in about if row["workers"] == most]
        plots = {
            f"servers-{rate}.svg": workers_plot(about),
            f"servers-{rate}-{most}-workers.svg": architectures_plot(of_most),
        }
        for name, drawn in plots.items():
            (folder / name).write_text(drawn)
            files.append(folder / name)
    return files


def measure(arguments: argparse.Namespace, file: Path) -> list[Row]:
    sweep = ["--workers", arguments.workers, "--servers", arguments.servers, "--rate", arguments.rate]
    effort = ["--bytes", arguments.bytes, "--seconds", str(arguments.seconds), "--repeats", str(arguments.repeats)]
    subprocess.run(
        [str(GYRE), "bench", "ps", *sweep, *effort, "--json", str(file)],
        env={**os.environ, "GYRE_PYTHON": sys.executable},
        timeout=LONGEST_SECONDS,
        check=True,
    )
    rows: list[Row] = json.loads(file.read_text())
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench servers", description=__doc__)
    parser.add_argument("--workers", default="2,4,8", help="numbers of workers (default: 2,4,8)")
    parser.add_argument("--servers", default="1,2,4,8", help="numbers of servers (default: 1,2,4,8)")
    parser.add_argument("--rate", default="100mbit,1gbit", help="of the links (default: 100mbit,1gbit)")
    parser.add_argument("--bytes", default="4000000", help="of one worker's gradients (default: 4000000)")
    parser.add_argument("--seconds", type=float, default=2.0, help="per figure (default: 2)")
    parser.add_argument("--repeats", type=int, default=1, help="turns, of which the medians count (default: 1)")
    parser.add_argument("--json", metavar="FILE", type=Path, default=Path("servers.json"), help="where the rows go")
    parser.add_argument("--plots", metavar="DIR", type=Path, help="where the plots go (default: the rows' folder)")
    parser.add_argument("--draw-only", action="store_true", help="draw the rows that FILE has, and measure nothing")
    arguments = parser.parse_args()
    rows = json.loads(arguments.json.read_text()) if arguments.draw_only else measure(arguments, arguments.json)
    for file in draw(rows, arguments.plots or arguments.json.parent):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
