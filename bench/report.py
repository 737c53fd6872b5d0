"""Makes the plots, and the tables of docs/performance.md, from the rows that ./dev bench all has written.

Figures are never typed: what stands between the page's two marks is replaced as a whole.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow_step
from _plot import Line, svg
from gyre.bench.report import COLUMNS, SERVER_COLUMNS, STEP_COLUMNS, cells, server_cells, size_text, step_cells
from servers import draw

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- What follows is written by ./dev bench report. -->"
END = "<!-- Until here. -->"

Row = dict[str, Any]
KB, MB = 1 << 10, 1 << 20


def read_rows(folder: Path) -> list[Row]:
    """Of all files of the folder that hold rows."""
    rows: list[Row] = []
    for file in sorted(folder.glob("*.json")):
        content = json.loads(file.read_text())
        if isinstance(content, list):
            rows += content
    if not rows:
        raise SystemExit(f"{folder} holds no rows; `./dev bench all --json {folder}` writes them")
    return rows


@dataclass(frozen=True)
class Target:
    """Something that is to be reached by the worst of the rows it is about."""

    what: str
    rows: Callable[[Row], bool]
    value: Callable[[Row], float | None]
    least: dict[int, float]  # By number of ranks; 0: any number.
    percent: bool = False

    def text(self, value: float) -> str:
        return f"{value:.0%}" if self.percent else f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def over(peer: str) -> Callable[[Row], float | None]:
    """How many times ours goes into the peer's time. Nothing exposed at all counts as a hundred times."""

    def value(row: Row) -> float | None:
        time = row["peers"].get(f"{peer}_us")
        if time is None:
            return None
        return 100.0 if row["ours_us"] <= time / 100 else time / row["ours_us"]

    return value


SHORTEST_US = 1000.0  # A difference of two long times that is smaller than this says only that it was not seen.


def over_from_gradients(peer: str) -> Callable[[Row], float | None]:
    """over(), of what an exchange takes beside the backward that hands out the gradients."""

    def value(row: Row) -> float | None:
        time = row["peers"].get(f"{peer}_us")
        if time is None:
            return None
        return (time - row["peers_backward_us"][f"{peer}_us"]) / max(row["ours_us"] - row["backward_us"], SHORTEST_US)

    return value


def of_bound(row: Row) -> float | None:
    return row["bound_us"] / row["ours_us"] if row["bound_us"] else None


def allreduce(path: str, sizes: tuple[int, int], face: str = "cpp", hosts: bool = False) -> Callable[[Row], bool]:
    def chosen(row: Row) -> bool:
        place = row.get("bench") == "allreduce" and (row["hosts"] > 1) == hosts and not row.get("tls")
        return place and row["path"] == path and row["face"] == face and sizes[0] <= row["bytes"] <= sizes[1]

    return chosen


def exchange(model: str, face: str, zero_grad: str | None = None) -> Callable[[Row], bool]:
    """In the arena. `zero_grad`: what the owner of the Python face's optimizer does between the steps."""

    def chosen(row: Row) -> bool:
        way = (row["path"], row["face"], row.get("zero_grad")) if row.get("bench") == "exchange" else None
        return way == ("arena", face, zero_grad) and row["model"] == model and row["hosts"] == 1

    return chosen


def step(way: str, *, bucket_views: bool = False) -> Callable[[Row], bool]:
    """Of vgg16, through this way into Gyre; `bucket_views`: of DDP."""

    def chosen(row: Row) -> bool:
        of_vgg16 = row.get("bench") == "step" and row["model"] == "vgg16" and row["via"] == way
        return of_vgg16 and row["bucket_views"] == bucket_views

    return chosen


def of_what_idle_ddp_lacks(row: Row) -> float | None:
    """What is lost in noise counts as a millisecond."""
    if "beyond_idle_us" not in row:
        return None
    return row["peers_beyond_idle_us"]["gloo_us"] / max(row["beyond_idle_us"], SHORTEST_US)


def of_step(row: Row) -> float | None:
    return row["peers_together_us"]["gloo_us"] / row["together_us"]


def of_sent(row: Row) -> float | None:
    return row["sent_bound_bytes"] / row["sent_bytes"] if row.get("sent_bytes") else None


def of_push_and_pull(row: Row) -> float | None:
    """At the link's rate, where nothing overlaps: more than all of it where something does."""
    return 2 * row["bound_us"] / row["ours_us"]


def servers(architecture: str, rate: str | None) -> Callable[[Row], bool]:
    """No more of them than workers: others have links that are not the limit."""

    def chosen(row: Row) -> bool:
        place = (row.get("architecture"), row.get("rate")) if row.get("bench") == "ps" else None
        return place == (architecture, rate) and row["servers"] <= row["workers"]

    return chosen


def tensorflow_step_of(what: str) -> Callable[[Row], bool]:
    return lambda row: row.get("bench") == "tensorflow_step" and row["what"] == what


MOST_CONTRIBUTING_US = 100.0


def within_contributing_time(row: Row) -> float | None:
    """What is lost in noise counts as a microsecond."""
    return MOST_CONTRIBUTING_US / max(row["peers"]["contributing_us"], 1.0)


def of_program(row: Row) -> bool:
    return row.get("bench") == "programs"


SERVERS_ON_ONE_HOST, DEDICATED_SERVERS = servers("one host", None), servers("dedicated", "100mbit")
GLOO, MPI = over("gloo"), over("openmpi")
GLOO_EXCHANGE = over_from_gradients("gloo")
ARENA_MIDDLE, ARENA_LARGE = allreduce("arena", (64 * KB, MB)), allreduce("arena", (16 * MB, 256 * MB))
ARENA_LARGEST, TENSOR_LARGEST = (allreduce(path, (256 * MB, 256 * MB)) for path in ("arena", "tensor"))
TENSOR_16MB, TENSOR_LARGE = (allreduce("tensor", (16 * MB, most)) for most in (16 * MB, 256 * MB))
TINY, TINY_PYTHON = (allreduce("tensor", (4, 4), face) for face in ("cpp", "python"))
OVER_LINKS = allreduce("arena", (4 * MB, 1 << 40), hosts=True)

TARGETS = [
    Target("allreduce in the arena, 64 KB to 1 MB, against gloo", ARENA_MIDDLE, GLOO, {2: 10, 4: 20}),
    Target("… against Open MPI", ARENA_MIDDLE, MPI, {2: 1.5, 4: 2}),
    Target("allreduce in the arena, 16 MB to 256 MB, against gloo", ARENA_LARGE, GLOO, {2: 10, 4: 12}),
    Target("… against Open MPI", ARENA_LARGE, MPI, {2: 3, 4: 4}),
    Target("allreduce of an ordinary tensor, 16 MB to 256 MB, against gloo", TENSOR_LARGE, GLOO, {2: 4, 4: 4}),
    Target("… 16 MB, against Open MPI", TENSOR_16MB, MPI, {2: 1, 4: 1}),
    Target("… 256 MB, against Open MPI", TENSOR_LARGEST, MPI, {2: 2, 4: 1.5}),
    Target("4 B, synchronous, C++, against Open MPI", TINY, MPI, {2: 0.5, 4: 0.5}),
    Target("4 B, synchronous, Python, against gloo", TINY_PYTHON, GLOO, {2: 10, 4: 10}),
    Target(
        "exchange of resnet50 in the arena, C++, against DDP over gloo", exchange("resnet50", "cpp"), GLOO, {2: 7, 4: 7}
    ),
    Target(
        "… Python, from p.grad, zero_grad(set_to_none=False)",
        exchange("resnet50", "python", "zeros"),
        GLOO_EXCHANGE,
        {2: 7, 4: 7},
    ),
    Target(
        "… Python, from p.grad, new gradients each step",
        exchange("resnet50", "python", "none"),
        GLOO_EXCHANGE,
        {2: 7, 4: 7},
    ),
    Target("what the C++ optimizer adds to a step of vgg16, against DDP over gloo", step("cpp"), GLOO, {2: 5, 4: 5}),
    Target("what gyre.torch's optimizer adds to it, against DDP over gloo", step("hvd"), GLOO, {2: 5, 4: 5}),
    Target("what DDP over gyre adds to it, against DDP over gloo", step("ddp"), GLOO, {2: 4}),
    Target("… to a DDP whose buckets nobody sums", step("ddp"), of_what_idle_ddp_lacks, {2: 4}),
    Target("… both with gradient_as_bucket_view, against DDP over gloo", step("ddp", bucket_views=True), GLOO, {2: 4}),
    Target("the whole step of DDP over gyre, against DDP over gloo", step("ddp"), of_step, {2: 1}),
    Target("256 MB in the arena, of the bound", ARENA_LARGEST, of_bound, {2: 0.7, 4: 0.6}, percent=True),
    Target("hosts, 4 MB and more, of the wire", OVER_LINKS, of_bound, {0: 0.93}, percent=True),
    Target("parameter servers on one host, against gloo's reduce and broadcast", SERVERS_ON_ONE_HOST, GLOO, {0: 3}),
    Target("… against TensorFlow's ParameterServerStrategy", SERVERS_ON_ONE_HOST, over("tensorflow"), {0: 5}),
    Target(
        "dedicated servers, 100mbit, of push and then pull", DEDICATED_SERVERS, of_push_and_pull, {0: 0.9}, percent=True
    ),
    Target(
        "what gyre.keras adds to a step, against MultiWorkerMirroredStrategy's all_reduce",
        tensorflow_step_of("exchange"),
        over("strategy"),
        {2: 5},
    ),
    Target("… against gyre.torch", tensorflow_step_of("exchange"), over("gyre_torch"), {2: 1 / 1.3}),
    Target(
        "ops that contribute 161 gradients, of 0.1 ms",
        tensorflow_step_of("ops alone"),
        within_contributing_time,
        {1: 1},
    ),
    Target("a training program on one rank, against eager PyTorch", of_program, lambda row: row["ratio"], {1: 1}),
    Target("hosts, 4 MB and more, least bytes of those sent", OVER_LINKS, of_sent, {0: 0.99}, percent=True),
]


def target_lines(rows: Sequence[Row]) -> list[str]:
    lines = ["| target | ranks | least | measured (worst row) | |", "|---|---|---|---|---|"]
    for target in TARGETS:
        for ranks, least in target.least.items():
            about = [row for row in rows if target.rows(row) and ranks in (0, row["ranks"])]
            values = [value for row in about if (value := target.value(row)) is not None]
            who = str(ranks) if ranks else "all"
            if not values:
                lines.append(f"| {target.what} | {who} | {target.text(least)} | not measured | |")
                continue
            worst = min(values)
            outcome = "reached" if worst >= least else "**missed**"
            lines.append(f"| {target.what} | {who} | {target.text(least)} | {target.text(worst)} | {outcome} |")
    return lines


def table_lines(rows: Sequence[Row]) -> list[str]:
    """Of one verb."""
    own = {"step": (STEP_COLUMNS, step_cells), "ps": (SERVER_COLUMNS, server_cells)}
    head, of_row = own.get(rows[0]["bench"], (COLUMNS, cells))
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(of_row(row)) + " |" for row in rows]


def bandwidth(row: Row, time_us: float | None) -> tuple[float, float] | None:
    return (row["bytes"], row["bytes"] / time_us / 1e3) if time_us else None


def sweep_plot(rows: Sequence[Row], ranks: int) -> str | None:
    """Size against bandwidth on one host: ours both ways, the peers, the bound."""
    ours = {}
    for path in ("arena", "tensor"):
        of_path = allreduce(path, (1, 1 << 40))
        ours[path] = [row for row in rows if of_path(row) and row["ranks"] == ranks]
    if any(len(found) < 2 for found in ours.values()):
        return None
    lines = [
        Line("Gyre, in the arena", [p for row in ours["arena"] if (p := bandwidth(row, row["ours_us"]))]),
        Line("Gyre, ordinary tensor", [p for row in ours["tensor"] if (p := bandwidth(row, row["ours_us"]))]),
    ]
    for name, peer in (("torch gloo", "gloo_us"), ("Open MPI", "openmpi_us")):
        points = [p for row in ours["arena"] if (p := bandwidth(row, row["peers"].get(peer)))]
        if points:
            lines.append(Line(name, points))
    lines.append(Line("bound", [p for row in ours["arena"] if (p := bandwidth(row, row["bound_us"]))], dashed=True))
    return svg(f"Allreduce of float32, {ranks} ranks on one host", "buffer of one rank", "GB/s", lines, size_text)


def measured_lines(facts: dict[str, Any]) -> list[str]:
    """Where and, for the benches of each run, when the rows were measured."""
    benches_of: dict[tuple[str, str, float], list[str]] = {}
    for bench, run in facts["runs"].items():
        stolen = f" ({run['stolen']:.1%} stolen)" if "stolen" in run else ""
        benches_of.setdefault((run["day"], run["commit"], run["load_before"]), []).append(bench + stolen)
    machine = f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, Linux {facts['kernel']}"
    return [
        f"Measured on {machine}. *Stolen* is the share of the processors' time that the hypervisor gave to others:",
        "",
        *(
            f"* {', '.join(benches)}: {day} at {commit}, load before the run {load:.2f}"
            for (day, commit, load), benches in benches_of.items()
        ),
    ]


def results(folder: Path) -> str:
    """The page's part between the marks; the plots are written beside the rows."""
    rows = read_rows(folder)
    lines: list[str] = []
    machine = folder / "machine.json"
    if machine.exists():
        lines += [*measured_lines(json.loads(machine.read_text())), ""]
    lines += ["### Against the targets", "", *target_lines(rows), ""]
    for ranks in sorted({row["ranks"] for row in rows}):
        drawn = sweep_plot(rows, ranks)
        if drawn:
            name = f"allreduce-{ranks}-ranks.svg"
            (folder / name).write_text(drawn)
            path = (folder / name).relative_to(PAGE.parent) if folder.is_relative_to(PAGE.parent) else folder / name
            lines += [f"![Size against bandwidth, {ranks} ranks]({path})", ""]
    for bench in ("allreduce", "exchange", "step"):
        chosen = [row for row in rows if row.get("bench") == bench]
        if chosen:
            lines += [f"### gyre bench {bench}", "", *table_lines(chosen), ""]
    lines += server_lines([row for row in rows if row.get("bench") == "ps"], folder)
    heavy = [row for row in rows if "memory_bytes" in row and row["zero_grad"] == "none"]
    if heavy:
        lines += ["### Memory of a rank in addition to the gradients", ""]
        lines += [
            f"* {row['model']}, {row['ranks']} ranks: {size_text(row['memory_bytes'] - row['bytes'])} in "
            f"addition to {size_text(row['bytes'])}"
            for row in heavy
        ]
        lines.append("")
    idle = [row for row in rows if row.get("bench") == "idle"]
    if idle:
        lines += ["### An idle job", ""]
        lines += [
            f"* {row['ranks']} ranks: at most {max(row['core_share_per_rank']):.3%} of a core per rank" for row in idle
        ]
        lines.append("")
    lines += join_lines([row for row in rows if row.get("bench") == "join"])
    lines += link_cost_lines([row for row in rows if row.get("bench") == "link_cost"])
    lines += tensorflow_step_lines([row for row in rows if row.get("bench") == "tensorflow_step"])
    lines += program_lines([row for row in rows if row.get("bench") == "programs"])
    lines += wire_use_lines([row for row in rows if row.get("bench") == "wire_use"])
    return "\n".join(lines)


def server_lines(rows: Sequence[Row], folder: Path) -> list[str]:
    """Parameter servers: the plots, and what they show."""
    if not rows:
        return []
    lines = ["### gyre bench ps", ""]
    for file in draw([row for row in rows if "rate" in row], folder):
        path = file.relative_to(PAGE.parent) if folder.is_relative_to(PAGE.parent) else file
        lines += [f"![Time per step over the number of parameter servers]({path})", ""]
    return [*lines, *table_lines(rows), ""]


def join_lines(rows: Sequence[Row]) -> list[str]:
    """What membership costs."""
    if not rows:
        return []
    times = [
        f"* {row['ranks']} ranks: {row['elapsed_s']:.2f} s, {row['processor_s']:.2f} s of processor time"
        for row in rows
    ]
    return ["### A job whose ranks only join and leave", "", *times, ""]


def link_cost_lines(rows: Sequence[Row]) -> list[str]:
    """What encryption takes of the wire and of the processors."""
    if not rows:
        return []
    lines = [
        "### What encryption between hosts costs",
        "",
        "Processor time of both ends for each GB that crosses a link:",
        "",
    ]
    lines += [
        f"* {size_text(row['bytes'])}, {row['rate']}, {'encrypted' if row['encrypted'] else 'plain'}: "
        f"{row['share']:.1%} of the wire, {row['seconds_per_gb']:.2f} s per GB"
        for row in rows
    ]
    return [*lines, ""]


def tensorflow_step_lines(rows: Sequence[Row]) -> list[str]:
    """What an exchange adds to a step of TensorFlow."""
    if not rows:
        return []
    lines = ["### What an exchange adds to a step of TensorFlow", ""]
    return [*lines, *tensorflow_step.table_lines(rows), ""]


def program_lines(rows: Sequence[Row]) -> list[str]:
    """The training programs compared with PyTorch."""
    if not rows:
        return []
    head = ["program", "threads", "batch", "samples per second", "eager PyTorch", "ratio"]
    lines = ["### Training programs on one rank", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        rates = [f"{row['samples_per_second']:.1f} {row['samples']}", f"{row['pytorch_samples_per_second']:.1f}"]
        facts = [row["program"], row["threads"], row["work"], *rates, f"{row['ratio']:.2f}x"]
        lines.append("| " + " | ".join(map(str, facts)) + " |")
    return [*lines, ""]


def wire_use_lines(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    head = ["hosts", "rate", "allreduce of", "processors stolen", "wire in use", "samples"]
    lines = ["### Links between hosts while others use the machine", "", "| " + " | ".join(head) + " |"]
    lines.append("|" + "---|" * len(head))
    for row in rows:
        for share in row["by_stolen"]:
            stolen = f"{share['from']:.0%} to {share['to']:.0%}"
            facts = [row["hosts"], row["rate"], size_text(row["bytes"]), stolen, f"{share['wire_use']:.1%}"]
            lines.append("| " + " | ".join(map(str, [*facts, share["samples"]])) + " |")
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench report", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=PAGE.parent / "performance", help="where the rows are")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write into (default: docs/performance.md)")
    arguments = parser.parse_args()
    page = arguments.page.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise SystemExit(f"{arguments.page} must hold each of these lines once:\n{BEGIN}\n{END}")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    arguments.page.write_text(f"{before}{BEGIN}\n\n{results(arguments.folder.resolve())}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
