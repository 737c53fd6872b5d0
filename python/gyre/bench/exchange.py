"""`gyre bench exchange`: a model's gradients, from p.grad to averaged p.grad, compared with DDP's buckets over gloo.

The gradients exist already, cold in memory; backward hands them out in its order, and the time runs until all are
averaged. Gyre is measured through gyre.torch's DistributedOptimizer (face python), through a plan in C++ whose
gradients are in the arena (cpp, arena) and as named operations on ordinary memory (cpp, tensor). Open MPI's column is
one MPI_Allreduce per gradient, in place.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gyre.bench.launch import Figures, Launcher, Place, module, program, why_no_openmpi
from gyre.bench.options import (
    FACES,
    MODEL_NAMES,
    PATHS,
    Effort,
    add_common,
    checked_model,
    choices_of,
    effort_of,
    places_of,
    size_of,
)
from gyre.bench.report import Row

_DEFAULT_FUSION = "64MB"


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "exchange",
        help="the gradients of a model",
        description=__doc__,
        epilog="example: gyre bench exchange resnet50 --ranks 2,4",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{', '.join(MODEL_NAMES)} (default: resnet50)")
    add_common(parser, seconds=2)
    parser.add_argument(
        "--fusion", default=_DEFAULT_FUSION, help=f"bucket size limits, such as 0,1MB,64MB (default: {_DEFAULT_FUSION})"
    )
    parser.add_argument(
        "--paths", default="arena,tensor", help="memory of the C++ rows: arena, tensor or both (the default)"
    )
    parser.add_argument("--faces", default="cpp,python", help="cpp, python or both (the default)")
    parser.set_defaults(measure=measure)


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    models = [checked_model(name) for name in arguments.models or ["resnet50"]]
    fusions = [size_of(text, "--fusion") for text in arguments.fusion.split(",")]
    faces = choices_of(arguments.faces, "--faces", FACES)
    paths = choices_of(arguments.paths, "--paths", PATHS)
    effort = effort_of(arguments)
    lacking = why_no_openmpi()
    if lacking is not None:
        launcher.note(f"Open MPI is left out: {lacking}")
    launcher.note("Horovod is not measured: PyPI has no built package of it")
    rows = []
    for place in places_of(arguments):
        for model in models:
            tensors = _write_tensor_list(launcher, model)
            turns = [
                _turn(launcher, place, model, tensors, effort, faces, paths, fusions) for _ in range(effort.repeats)
            ]
            rows += _rows(place, model, fusions, turns)
    return rows


def _write_tensor_list(launcher: Launcher, model: str) -> Path:
    from gyre.bench.models import tensor_list  # noqa: PLC0415 - torch takes seconds to load; --help needs none

    path = launcher.file("tensors.json")
    path.write_text(json.dumps([{"name": name, "shape": shape} for name, shape in tensor_list(model)]))
    return path


def _turn(
    launcher: Launcher,
    place: Place,
    model: str,
    tensors: Path,
    effort: Effort,
    faces: Sequence[str],
    paths: Sequence[str],
    fusions: Sequence[int],
) -> dict[str, Figures]:
    """Runs every program once, one after the other, so that a noisy minute affects all alike."""
    common = ["--tensors", str(tensors), "--seconds", str(effort.seconds)]
    where = f"exchange of {model}, {place.words}"
    found: dict[str, Figures] = {}
    for fusion in fusions:
        environment = {"GYRE_FUSION_BYTES": str(fusion)}
        launcher.say(f"{where}: ours through C++")
        wanted = ",".join(paths) if "cpp" in faces else "none"
        command = [str(program("gyre-bench-rank")), "exchange", *common, "--paths", wanted]
        found[f"cpp {fusion}"] = launcher.ranks(place, command, environment)
        if "python" in faces:
            launcher.say(f"{where}: ours through Python")
            found[f"python {fusion}"] = launcher.ranks(place, module("gyre_exchange", *common), environment)
    launcher.say(f"{where}: DDP over torch's gloo")
    found["gloo_us"] = launcher.ranks(place, module("gloo_exchange", *common, "--store", str(launcher.file("store"))))
    if place.hosts == 1 and why_no_openmpi() is None:
        launcher.say(f"{where}: Open MPI")
        found["openmpi_us"] = launcher.mpi(place, module("openmpi_exchange", *common))
    return found


def _rows(place: Place, model: str, fusions: Sequence[int], turns: Sequence[dict[str, Figures]]) -> list[Row]:
    """The rows of one model in one place; medians over the turns."""

    def figure(program_name: str, key: str) -> float:
        return float(statistics.median(turn[program_name][key] for turn in turns))

    def backward(program_name: str, key: str) -> float:
        return float(statistics.median(turn[program_name]["backward"][key] for turn in turns))

    def peers(key: str) -> dict[str, float]:
        return {name: figure(name, key) for name in ("gloo_us", "openmpi_us") if name in turns[0]}

    rows = []
    for fusion in fusions:
        size = turns[0][f"cpp {fusion}"]["bytes"]
        common = {
            "bench": "exchange",
            "model": model,
            "bytes": size,
            **place.columns(),
            "fusion_bytes": fusion,
        }
        bound = place.bound_us(size, figure(f"cpp {fusion}", "bound_bytes_per_second"))
        for path in ("arena", "tensor"):
            if path in turns[0][f"cpp {fusion}"]:
                ours = figure(f"cpp {fusion}", path)
                found = {"ours_us": ours, "peers": peers("none"), "bound_us": bound}
                rows.append({**common, "path": path, "face": "cpp", **found})
        for zero_grad in ("none", "zeros"):
            if f"python {fusion}" in turns[0]:
                found = {
                    "ours_us": figure(f"python {fusion}", zero_grad),
                    "peers": peers(zero_grad),
                    "bound_us": bound,
                    "backward_us": backward(f"python {fusion}", zero_grad),
                    "peers_backward_us": {
                        name: backward(name, zero_grad) for name in ("gloo_us", "openmpi_us") if name in turns[0]
                    },
                    "memory_bytes": figure(f"python {fusion}", "memory_bytes"),
                    "zero_grad": zero_grad,
                }
                rows.append({**common, "path": "arena", "face": "python", **found})
    return rows
