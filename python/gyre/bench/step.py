"""`gyre bench step`: whole training steps of a model, compared with DDP over gloo.

Three variants use Gyre: `ddp` is DistributedDataParallel over the backend gyre, `hvd` is gyre.torch's
DistributedOptimizer, `cpp` is a libtorch program with gyre::train::DistributedOptimizer. Each row has the whole step,
the step of the same number of ranks at the same time without exchange, and the exposed time: the difference, round by
round; and the processor time that the exchange adds to a step of one rank. All are medians over the rounds.

Two more variants exchange nothing, and show costs that no exchange can avoid: with `meet` the ranks only wait for each
other after backward, so the exposed time is the cost of their unequal speed; with `ddp-idle` DDP's buckets are not
summed, so the exposed time is the cost of DDP's own copies.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from typing import Any

from gyre.bench.errors import UsageError
from gyre.bench.launch import Figures, Launcher, Place, module, program
from gyre.bench.options import MODEL_NAMES, Effort, add_common, checked_model, choices_of, effort_of, places_of
from gyre.bench.report import Row

_LARGEST_IMAGE = 1024
_LARGEST_BATCH = 4096
WAYS = ("ddp", "hvd", "cpp")
WITHOUT_EXCHANGE = ("meet", "ddp-idle")


@dataclass(frozen=True)
class _Work:
    """The computation of one step."""

    model: str
    image_size: int
    batch_size: int
    outputs: int
    bucket_views: bool  # Of DDP.

    @property
    def arguments(self) -> list[str]:
        """Of a rank's program."""
        sizes = ["--image-size", str(self.image_size), "--batch", str(self.batch_size)]
        views = ["--bucket-views"] if self.bucket_views else []
        return ["--model", self.model, *sizes, "--outputs", str(self.outputs), *views]


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "step",
        help="a training step of a model: what the exchange adds to it",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: gyre bench step vgg16 --image-size 32 --batch 32 --ranks 2 --via ddp,hvd",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(MODEL_NAMES)} (default: vgg16)")
    add_common(parser, seconds=18)
    parser.add_argument(
        "--via",
        default="all",
        help=f"variants to measure: some of {', '.join(WAYS)}, or all (default: all); and, to compare with, "
        f"{' and '.join(WITHOUT_EXCHANGE)}, which exchange nothing",
    )
    parser.add_argument("--batch", type=int, help="samples per rank (default: the model's)")
    parser.add_argument("--image-size", type=int, help="pixels per side (default: the model's; vgg16: 32)")
    parser.add_argument(
        "--bucket-views", action="store_true", help="DDP, over gyre and over gloo, with gradient_as_bucket_view=True"
    )
    parser.set_defaults(measure=measure)


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    names = [checked_model(name) for name in arguments.models or ["vgg16"]]
    ways = list(WAYS) if arguments.via == "all" else choices_of(arguments.via, "--via", (*WAYS, *WITHOUT_EXCHANGE))
    ways = [way for way in (*WAYS, *WITHOUT_EXCHANGE) if way in ways]
    effort = effort_of(arguments)
    if "cpp" in ways and arguments.via == "all" and not _has_libtorch():
        ways.remove("cpp")
        launcher.note("the variant cpp is not measured: there is no gyre-bench-step (this build has no libtorch)")
    works = [_work(name, arguments) for name in names]
    return [
        row for place in places_of(arguments) for work in works for row in _rows(launcher, place, work, ways, effort)
    ]


def _has_libtorch() -> bool:
    try:
        program("gyre-bench-step")
    except UsageError:
        return False
    return True


def _work(name: str, arguments: argparse.Namespace) -> _Work:
    """UsageError for impossible sizes."""
    from gyre.bench.models import MODELS  # noqa: PLC0415 - torch takes seconds to load; --help needs none

    model = MODELS[name]
    usual_size = model.step_image_size or model.image_size
    image_size = usual_size if arguments.image_size is None else arguments.image_size
    batch_size = model.batch_size if arguments.batch is None else arguments.batch
    if not model.smallest_image_size <= image_size <= _LARGEST_IMAGE:
        raise UsageError(f"--image-size is {image_size}; {name} takes {model.smallest_image_size} to {_LARGEST_IMAGE}")
    if not 1 <= batch_size <= _LARGEST_BATCH:
        raise UsageError(f"--batch is {batch_size}; 1 to {_LARGEST_BATCH} are possible")
    return _Work(name, image_size, batch_size, model.step_outputs or model.outputs, arguments.bucket_views)


def _rows(launcher: Launcher, place: Place, work: _Work, ways: list[str], effort: Effort) -> list[Row]:
    """One row for each variant, all with the same figures for gloo."""
    where = f"step of {work.model}, {place.words}"
    in_python = [way for way in ways if way != "cpp"]
    python: list[Figures] = []
    cpp: list[Figures] = []
    for _ in range(effort.repeats):
        launcher.say(f"{where}: {', '.join(['gloo', *in_python])}")
        seconds = ["--seconds", str(effort.seconds)]
        store = ["--store", str(launcher.file("store"))]
        via = ["--via", ",".join(["gloo", *in_python])]
        python.append(launcher.ranks(place, module("step", *work.arguments, *via, *seconds, *store)))
        if "cpp" in ways:
            launcher.say(f"{where}: cpp")
            # Two steps per turn; the Python program has up to four.
            seconds = ["--seconds", str(effort.seconds / 2)]
            cpp.append(launcher.ranks(place, [str(program("gyre-bench-step")), *work.arguments, *seconds]))
    return [_row(place, work, way, cpp if way == "cpp" else python, python) for way in ways]


def _row(place: Place, work: _Work, way: str, ours: list[Figures], gloo: list[Figures]) -> Row:
    def figure(turns: list[Figures], what: str, kind: str = "time_us") -> float:
        return float(statistics.median(turn[kind][what] for turn in turns))

    beyond_idle: Row = {}
    if way == "ddp" and "beyond_idle_us" in gloo[0]:  # What an exchange adds to a DDP that has none.
        beyond_idle["beyond_idle_us"] = figure(ours, "ddp", "beyond_idle_us")
        beyond_idle["peers_beyond_idle_us"] = {"gloo_us": figure(gloo, "gloo", "beyond_idle_us")}
    alone_us, together_us = figure(ours, "alone"), figure(ours, way)
    gloo_alone_us, gloo_together_us = figure(gloo, "alone"), figure(gloo, "gloo")
    return {
        "bench": "step",
        "model": work.model,
        "image_size": work.image_size,
        "batch": work.batch_size,
        "bucket_views": work.bucket_views,
        **place.columns(),
        "threads": place.threads,
        "bytes": ours[0]["bytes"],
        "rounds": ours[0]["rounds"],
        "via": way,
        "path": "arena",
        "face": "cpp" if way == "cpp" else "python",
        "alone_us": alone_us,
        "together_us": together_us,
        "ours_us": figure(ours, way, "exposed_us"),
        "peers": {"gloo_us": figure(gloo, "gloo", "exposed_us")},
        "peers_alone_us": {"gloo_us": gloo_alone_us},
        "peers_together_us": {"gloo_us": gloo_together_us},
        "processor_us": figure(ours, way, "processor_us"),
        "peers_processor_us": {"gloo_us": figure(gloo, "gloo", "processor_us")},
        "bound_us": None,
        **beyond_idle,
    }
