"""`gyre bench allreduce`: one collective at a time, from 4 B to 256 MB, beside torch's gloo and Open MPI."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from gyre.bench.errors import UsageError
from gyre.bench.launch import Figures, Launcher, Place, module, program, why_no_openmpi
from gyre.bench.options import (
    FACES,
    PATHS,
    Effort,
    add_common,
    choices_of,
    effort_of,
    ranks_of,
    size_of,
)
from gyre.bench.report import Row

_SIZES = "4,64,1KB,4KB,16KB,64KB,256KB,1MB,4MB,16MB,64MB,256MB"
_LARGEST = 1 << 32
# Every tensor of the arena is a bucket of its own: the figure is one collective's.
_NO_FUSION = {"GYRE_FUSION_BYTES": "0"}


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "allreduce",
        help="one collective at a time, from 4 B to 256 MB",
        description=__doc__,
        epilog="example: gyre bench allreduce --ranks 2,4 --sizes 4,64KB,16MB --json allreduce.json",
    )
    add_common(parser, seconds=0.6)
    parser.add_argument("--sizes", default=_SIZES, help=f"in bytes, multiples of 4 (default: {_SIZES})")
    parser.add_argument("--faces", default="cpp,python", help="cpp, python or both (the default)")
    parser.add_argument("--paths", default="arena,tensor", help="of the C++ face: arena, tensor or both (the default)")
    parser.set_defaults(measure=measure)


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    sizes = [size_of(text, "--sizes") for text in arguments.sizes.split(",")]
    if any(size < 4 or size % 4 or size > _LARGEST for size in sizes):
        raise UsageError(f"--sizes is '{arguments.sizes}'; multiples of 4 up to 4 GB are needed")
    faces = choices_of(arguments.faces, "--faces", FACES)
    paths = choices_of(arguments.paths, "--paths", PATHS)
    effort = effort_of(arguments)
    lacking = why_no_openmpi()
    if lacking is not None:
        launcher.note(f"Open MPI is left out: {lacking}")
    rows = []
    for ranks in ranks_of(arguments):
        turns = [_turn(launcher, Place(ranks), sizes, effort, faces, paths) for _ in range(effort.repeats)]
        rows += _rows(ranks, sizes, turns)
    return rows


def _turn(
    launcher: Launcher, place: Place, sizes: Sequence[int], effort: Effort, faces: Sequence[str], paths: Sequence[str]
) -> dict[str, Figures]:
    """Every program once, one after the other, so that a noisy minute hits all alike."""
    common = ["--sizes", ",".join(map(str, sizes)), "--seconds", str(effort.seconds)]
    found: dict[str, Figures] = {}
    # The C++ face is always there: the bound is measured in it.
    launcher.say(f"allreduce, {place.ranks} ranks: ours through C++")
    wanted = ",".join(paths) if "cpp" in faces else "none"
    command = [str(program("gyre-bench-rank")), "allreduce", *common, "--paths", wanted]
    found["cpp"] = launcher.ranks(place, command, _NO_FUSION)
    if "python" in faces:
        launcher.say(f"allreduce, {place.ranks} ranks: ours through Python")
        found["python"] = launcher.ranks(place, module("gyre_allreduce", *common), _NO_FUSION)
    launcher.say(f"allreduce, {place.ranks} ranks: torch's gloo")
    found["gloo_us"] = launcher.ranks(place, module("gloo_allreduce", *common, "--store", str(launcher.file("store"))))
    if why_no_openmpi() is None:
        launcher.say(f"allreduce, {place.ranks} ranks: Open MPI")
        found["openmpi_us"] = launcher.mpi(place, module("openmpi_allreduce", *common))
    return found


def _rows(ranks: int, sizes: Sequence[int], turns: Sequence[dict[str, Figures]]) -> list[Row]:
    """Of one number of ranks; medians over the turns."""
    copy_rate = statistics.median(turn["cpp"]["memcpy_bytes_per_second"] for turn in turns)
    rows = []
    for size in sizes:
        peers = {
            name: statistics.median(turn[name]["tensor"][str(size)] for turn in turns)
            for name in ("gloo_us", "openmpi_us")
            if name in turns[0]
        }
        for face in FACES:
            for path in PATHS:
                if path not in turns[0].get(face, {}):
                    continue
                ours = statistics.median(turn[face][path][str(size)] for turn in turns)
                rows.append(
                    {
                        "bench": "allreduce",
                        "ranks": ranks,
                        "bytes": size,
                        "path": path,
                        "face": face,
                        "hosts": 1,
                        "ours_us": ours,
                        "peers": peers,
                        "bound_us": ranks * size / copy_rate * 1e6,
                    }
                )
    return rows
