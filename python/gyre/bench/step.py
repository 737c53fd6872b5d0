"""`gyre bench step`: whole training steps of a model, beside DDP over gloo.

The figure is what the exchange adds: a step with it less a step without, of as many ranks at the same time, each until
the last rank has ended. Steps with and without alternate; medians of both are in the JSON rows.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from gyre.bench.errors import UsageError
from gyre.bench.launch import Figures, Launcher, Place, module
from gyre.bench.options import MODEL_NAMES, Effort, add_common, checked_model, effort_of, places_of
from gyre.bench.report import Row

_LARGEST_IMAGE = 1024
_LARGEST_BATCH = 4096


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "step",
        help="a training step of a model: what the exchange adds to it",
        description=__doc__,
        epilog="example: gyre bench step vgg16 --image-size 32 --batch 32 --ranks 2",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(MODEL_NAMES)} (default: vgg16)")
    add_common(parser, seconds=20)
    parser.add_argument("--batch", type=int, help="samples per rank (default: the model's)")
    parser.add_argument("--image-size", type=int, help="pixels per side (default: the model's; vgg16: 32)")
    parser.set_defaults(measure=measure)


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    from gyre.bench.models import MODELS  # noqa: PLC0415 - torch takes seconds to load; --help needs none

    names = [checked_model(name) for name in arguments.models or ["vgg16"]]
    effort = effort_of(arguments)
    works = []
    for name in names:
        model = MODELS[name]
        image_size = arguments.image_size or model.step_image_size or model.image_size
        batch_size = arguments.batch or model.batch_size
        if not model.smallest_image_size <= image_size <= _LARGEST_IMAGE:
            raise UsageError(
                f"--image-size is {image_size}; {name} takes {model.smallest_image_size} to {_LARGEST_IMAGE}"
            )
        if not 1 <= batch_size <= _LARGEST_BATCH:
            raise UsageError(f"--batch is {batch_size}; 1 to {_LARGEST_BATCH} are possible")
        works.append((name, image_size, batch_size))
    return [
        _row(launcher, place, name, image_size, batch_size, effort)
        for place in places_of(arguments)
        for name, image_size, batch_size in works
    ]


def _row(launcher: Launcher, place: Place, name: str, image_size: int, batch_size: int, effort: Effort) -> Row:
    common = ["--model", name, "--image-size", str(image_size), "--batch", str(batch_size)]
    common += ["--seconds", str(effort.seconds)]
    where = f"step of {name}, {place.words}"
    ours: list[Figures] = []
    gloo: list[Figures] = []
    for _ in range(effort.repeats):
        launcher.say(f"{where}: ours")
        ours.append(launcher.ranks(place, module("gyre_step", *common)))
        launcher.say(f"{where}: DDP over torch's gloo")
        gloo.append(launcher.ranks(place, module("gloo_step", *common, "--store", str(launcher.file("store")))))

    def figure(turns: list[Figures], key: str) -> float:
        return float(statistics.median(turn[key] for turn in turns))

    return {
        "bench": "step",
        "model": name,
        "image_size": image_size,
        "batch": batch_size,
        **place.columns(),
        "threads": place.threads,
        "bytes": ours[0]["bytes"],
        "path": "arena",
        "face": "python",
        "alone_us": figure(ours, "alone_us"),
        "together_us": figure(ours, "together_us"),
        "ours_us": figure(ours, "together_us") - figure(ours, "alone_us"),
        "peers": {"gloo_us": figure(gloo, "together_us") - figure(gloo, "alone_us")},
        "peers_alone_us": {"gloo_us": figure(gloo, "alone_us")},
        "bound_us": None,
    }
