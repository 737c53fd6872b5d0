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


def sweep_plot(rows: Sequence[Row], workers: int, rate: str) -> str:
    """Time per step over the number of servers: measured and predicted, for each placement; allreduce as a level."""
    about = [row for row in rows if (row["workers"], row.get("rate")) == (workers, rate)]
    lines = []
    for placement in ("dedicated", "colocated"):
        of_placement = [row for row in about if row["architecture"] == placement]
        if not of_placement:
            continue
        for name, key in ((f"{placement} servers", "ours_us"), ("… predicted", "predicted_us")):
            points = [(row["servers"], row[key] / 1e6) for row in of_placement]
            lines.append(Line(name, points, dashed=key == "predicted_us"))
    counts = [row["servers"] for row in about if row["servers"]]
    for row in about:
        if row["architecture"] == "allreduce":
            lines.append(Line("allreduce", [(count, row["ours_us"] / 1e6) for count in (min(counts), max(counts))]))
    megabytes = about[0]["bytes"] / 1e6
    title = f"{megabytes:g} million bytes of gradients, {workers} workers, links of {rate}"
    return svg(title, "parameter servers", "seconds per step", lines, lambda count: f"{count:g}", x_base=2)


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
    parser.add_argument("--workers", default="4,8", help="numbers of workers (default: 4,8)")
    parser.add_argument("--servers", default="1,2,4,8", help="numbers of servers (default: 1,2,4,8)")
    parser.add_argument("--rate", default="100mbit,400mbit", help="of the links (default: 100mbit,400mbit)")
    parser.add_argument("--bytes", default="4000000", help="of one worker's gradients (default: 4000000)")
    parser.add_argument("--seconds", type=float, default=3.0, help="per figure (default: 3)")
    parser.add_argument("--repeats", type=int, default=1, help="turns, of which the medians count (default: 1)")
    parser.add_argument("--json", metavar="FILE", type=Path, default=Path("servers.json"), help="where the rows go")
    parser.add_argument("--plots", metavar="DIR", type=Path, help="where the plots go (default: the rows' folder)")
    parser.add_argument("--draw-only", action="store_true", help="draw the rows that FILE has, and measure nothing")
    arguments = parser.parse_args()
    rows = json.loads(arguments.json.read_text()) if arguments.draw_only else measure(arguments, arguments.json)
    folder = arguments.plots or arguments.json.parent
    for workers, rate in sorted({(row["workers"], row["rate"]) for row in rows}):
        file = folder / f"servers-{workers}-workers-{rate}.svg"
        file.write_text(sweep_plot(rows, workers, rate))
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
