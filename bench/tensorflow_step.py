"""What exchanging a network's gradients (resnet50's) adds to a step of a tf.function: Gyre's exchange, as
DistributedOptimizer of gyre.keras and DistributedGradientTape of gyre.tensorflow make it, compared with
MultiWorkerMirroredStrategy's all_reduce in replica context (its ring over gRPC) and with gyre.torch.

A step computes the gradients (each element is multiplied once), reduces and applies them. It is timed in turns with
the same step whose gradients are not reduced, and what is added is the median of the differences. The last figures
are of one rank, which has nobody to exchange with, and of as many gradients of 16 elements: what all of Gyre's ops
add to a step, and what those add through which gradients leave, without the end of the exchange. Every first step is
checked against the average.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gyre.bench.errors import BenchError, UsageError
from gyre.bench.launch import Figures, Interrupted, Launcher, Place, launcher
from gyre.bench.models import tensor_list
from gyre.bench.options import checked_model
from gyre.bench.report import Row, check_writable, time_text, write_json

ROOT = Path(__file__).resolve().parent.parent
TENSORFLOW = ROOT / ".venv" / "tensorflow" / "bin" / "python"


_Peer = tuple[Sequence[Figures], str, str]  # Runs, and which of their steps to compare with which.


class Measurement:
    """Runs the ranks' programs; `repeats` times, in turns."""

    def __init__(self, programs: Launcher, python: Path, seconds: float, repeats: int) -> None:
        self._programs = programs
        self._python = python
        self._seconds = seconds
        self._repeats = repeats

    def rows(self, ranks: int, shapes: Sequence[Sequence[int]]) -> list[Row]:
        place, small = Place(ranks), [[16]] * len(shapes)
        in_tensorflow, in_torch, of_ops = [], [], []
        for _ in range(self._repeats):
            in_tensorflow.append(self._run(self._python, "_tensorflow_step_rank.py", place, shapes, peer=True))
            in_torch.append(self._run(Path(sys.executable), "_torch_step_rank.py", place, shapes))
            of_ops.append(self._run(self._python, "_tensorflow_step_rank.py", Place(1), small))
        peers = {"strategy": (in_tensorflow, "strategy", "strategy alone"), "gyre_torch": (in_torch, "gyre", "alone")}
        return [
            _row("exchange", place, shapes, in_tensorflow, peers),
            _row("ops alone", Place(1), small, of_ops, {"contributing": (of_ops, "contributing", "alone")}),
        ]

    def _run(
        self, python: Path, name: str, place: Place, shapes: Sequence[Sequence[int]], *, peer: bool = False
    ) -> Figures:
        self._programs.say(f"{name}, {place.words}")
        tensors = self._programs.file("tensors.json")
        write_json(tensors, shapes)
        store = ["--store", str(self._programs.file("store"))] if peer else []
        words = ["--tensors", str(tensors), "--seconds", str(self._seconds), *store]
        # As gyre.tensorflow divides the cores. The strategy sets TensorFlow up before that can.
        settings = {"TF_NUM_INTRAOP_THREADS": str(place.threads), "TF_NUM_INTEROP_THREADS": str(max(2, place.threads))}
        settings["TMPDIR"] = str(self._programs.scratch)  # AutoGraph's files are left where a process ends at once.
        return self._programs.ranks(place, [str(python), str(ROOT / "bench" / name), *words], settings)


def _added(runs: Sequence[Figures], name: str, to: str, kind: str = "time_us") -> float:
    """By `name` to a step of `to`: the median over the rounds of all runs."""
    return statistics.median(
        together - alone for run in runs for together, alone in zip(run[name][kind], run[to][kind], strict=True)
    )


def _alone(runs: Sequence[Figures], name: str) -> float:
    return statistics.median(time for run in runs for time in run[name]["time_us"])


def _row(
    what: str, place: Place, shapes: Sequence[Sequence[int]], runs: Sequence[Figures], peers: Mapping[str, _Peer]
) -> Row:
    return {
        "bench": "tensorflow_step",
        "what": what,
        **place.columns(),
        "gradients": len(shapes),
        "bytes": 4 * sum(math.prod(shape) for shape in shapes),
        "rounds": sum(len(run["gyre"]["time_us"]) for run in runs),
        "alone_us": _alone(runs, "alone"),
        "ours_us": _added(runs, "gyre", "alone"),
        "peers": {f"{name}_us": _added(*peer) for name, peer in peers.items()},
        "peers_alone_us": {f"{name}_us": _alone(runs, alone) for name, (runs, _, alone) in peers.items()},
        "processor_us": _added(runs, "gyre", "alone", "processor_us"),
        "peers_processor_us": {f"{name}_us": _added(*peer, "processor_us") for name, peer in peers.items()},
    }


COLUMNS = ("step", "ranks", "gradients", "through", "alone", "added", "/ Gyre's", "processor of a rank", "/ Gyre's")
_PEERS = {
    "strategy_us": "MultiWorkerMirroredStrategy",
    "gyre_torch_us": "gyre.torch",
    "contributing_us": "Gyre's contributions",
}


def _cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Gyre's figures and the peers', a line each, below COLUMNS."""
    lines = [COLUMNS]
    for row in rows:
        figures = {"Gyre": (row["alone_us"], row["ours_us"], row["processor_us"])}
        for name in row["peers"]:
            figures[_PEERS[name]] = (row["peers_alone_us"][name], row["peers"][name], row["peers_processor_us"][name])
        for name, (alone, added, processor) in figures.items():
            of_ours = (f"{added / row['ours_us']:.2f}", f"{processor / row['processor_us']:.2f}")
            times = (time_text(alone), time_text(added), of_ours[0], time_text(processor), of_ours[1])
            lines.append((row["what"], str(row["ranks"]), str(row["gradients"]), name, *times))
    return lines


def table_lines(rows: Sequence[Row]) -> list[str]:
    """For docs/performance.md."""
    head, *lines = ["| " + " | ".join(cells) + " |" for cells in _cells(rows)]
    return [head, "|" + "---|" * len(COLUMNS), *lines]


def table(rows: Sequence[Row]) -> str:
    lines = _cells(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench tensorflow_step",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="resnet50", help="whose gradients (default: resnet50)")
    parser.add_argument("--ranks", type=int, default=2, help="on this host (default: 2)")
    parser.add_argument("--seconds", type=float, default=10.0, help="per program (default: 10)")
    parser.add_argument("--repeats", type=int, default=3, help="turns of the programs (default: 3)")
    parser.add_argument("--tensorflow", type=Path, default=TENSORFLOW, metavar="PYTHON", help="one that has TensorFlow")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows go as well")
    arguments = parser.parse_args()
    if arguments.ranks < 2:
        parser.error(f"{arguments.ranks} ranks do not exchange anything")
    if not os.access(arguments.tensorflow, os.X_OK):
        parser.error(f"there is no {arguments.tensorflow}; `./dev setup` makes it")
    try:
        model = checked_model(arguments.model)
        if arguments.json is not None:
            check_writable(arguments.json)
        with launcher(verbose=sys.stderr.isatty()) as programs:
            measurement = Measurement(programs, arguments.tensorflow, arguments.seconds, arguments.repeats)
            rows = measurement.rows(arguments.ranks, [shape for _, shape in tensor_list(model)])
    except (BenchError, UsageError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except Interrupted as signal:
        print(f"{parser.prog}: interrupted; nothing was written", file=sys.stderr)
        return 128 + signal.number
    print(table(rows))
    if arguments.json is not None:
        write_json(arguments.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
