"""`gyre bench moves`: allgather, alltoall and broadcast, which only move data, compared with gloo and Open MPI.

Ours through the engine in C++, and through torch.distributed over the backend gyre in Python; the peers through Python:
torch.distributed over gloo, and mpi4py. A size is what each rank contributes (allgather), sends in all (alltoall) or
receives (broadcast).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from gyre.bench.errors import UsageError
from gyre.bench.launch import Figures, Launcher, Place, module, program, why_no_openmpi
from gyre.bench.options import FACES, Effort, add_common, choices_of, effort_of, places_of, size_of
from gyre.bench.report import Row

OPERATIONS = ("allgather", "alltoall", "broadcast")
_SIZES = "1KB,64KB,1MB,16MB"
_LARGEST = 1 << 30


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "moves",
        help="allgather, alltoall and broadcast",
        description=__doc__,
        epilog="example: gyre bench moves --ranks 2,4 --operations allgather --sizes 1MB,16MB",
    )
    add_common(parser, seconds=0.6)
    parser.add_argument(
        "--sizes", default=_SIZES, help=f"in bytes, multiples of the number of ranks (default: {_SIZES})"
    )
    parser.add_argument("--operations", default=",".join(OPERATIONS), help="some of them (default: %(default)s)")
    parser.add_argument("--faces", default="cpp,python", help="cpp, python or both (the default)")
    parser.set_defaults(measure=measure)


def sizes_of(text: str, place: Place) -> list[int]:
    sizes = [size_of(part, "--sizes") for part in text.split(",")]
    if any(not 1 <= size <= _LARGEST or size % place.ranks for size in sizes):
        raise UsageError(f"--sizes is '{text}'; multiples of the number of ranks ({place.ranks}) up to 1 GB are needed")
    return sizes


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    operations = choices_of(arguments.operations, "--operations", OPERATIONS)
    faces = choices_of(arguments.faces, "--faces", FACES)
    effort = effort_of(arguments)
    places = [(place, sizes_of(arguments.sizes, place)) for place in places_of(arguments)]
    lacking = why_no_openmpi()
    if lacking is not None:
        launcher.note(f"Open MPI is left out: {lacking}")
    rows = []
    for place, sizes in places:
        turns = [_turn(launcher, place, sizes, operations, effort, faces) for _ in range(effort.repeats)]
        rows += _rows(place, sizes, operations, faces, turns)
    return rows


def _turn(
    launcher: Launcher,
    place: Place,
    sizes: Sequence[int],
    operations: Sequence[str],
    effort: Effort,
    faces: Sequence[str],
) -> dict[str, Figures]:
    """Every program once, one after the other, so that a noisy minute hits all alike."""
    common = ["--sizes", ",".join(map(str, sizes)), "--operations", ",".join(operations)]
    common += ["--seconds", str(effort.seconds)]
    found: dict[str, Figures] = {}
    if "cpp" in faces:
        launcher.say(f"moves, {place.words}: ours through C++")
        found["cpp"] = launcher.ranks(place, [str(program("gyre-bench-rank")), "moves", *common])
    if "python" in faces:
        launcher.say(f"moves, {place.words}: ours through Python")
        found["python"] = launcher.ranks(place, module("gyre_moves", *common, "--store", str(launcher.file("store"))))
    launcher.say(f"moves, {place.words}: torch's gloo")
    found["gloo_us"] = launcher.ranks(place, module("gloo_moves", *common, "--store", str(launcher.file("store"))))
    if place.hosts == 1 and why_no_openmpi() is None:
        launcher.say(f"moves, {place.words}: Open MPI")
        found["openmpi_us"] = launcher.mpi(place, module("openmpi_moves", *common))
    return found


def _bound_us(place: Place, operation: str, size_bytes: int, copied_bytes_per_second: float) -> float:
    """One host: each rank copies what it receives, all at the same time. Several: what the links between the hosts must
    carry in one direction, at their full rate, headers not included."""
    received = size_bytes * (place.ranks if operation == "allgather" else 1)
    if place.hosts == 1:
        return received / copied_bytes_per_second * 1e6
    from hosts import bits_per_second  # noqa: PLC0415 - a tool of the repository, not part of the package

    from_others = (place.hosts - 1) / place.hosts
    crossing = {
        "allgather": received * from_others,
        "alltoall": received * from_others * place.ranks / place.hosts,
        "broadcast": received,
    }
    return float(crossing[operation] * 8 / bits_per_second(place.rate) * 1e6)


def _rows(
    place: Place,
    sizes: Sequence[int],
    operations: Sequence[str],
    faces: Sequence[str],
    turns: Sequence[dict[str, Figures]],
) -> list[Row]:
    """Of one place; medians over the turns."""
    bound_rate = statistics.median(turn["gloo_us"]["bound_bytes_per_second"] for turn in turns)
    rows = []
    for operation in operations:
        for size in sizes:
            times = {
                name: float(statistics.median(turn[name][operation][str(size)] for turn in turns)) for name in turns[0]
            }
            peers = {name: time for name, time in times.items() if name not in FACES}
            rows += [
                {
                    "bench": "moves",
                    "operation": operation,
                    "bytes": size,
                    "path": "tensor",
                    "face": face,
                    **place.columns(),
                    "ours_us": times[face],
                    "peers": peers,
                    "bound_us": _bound_us(place, operation, size, bound_rate),
                }
                for face in FACES
                if face in faces
            ]
    return rows
