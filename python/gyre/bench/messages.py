"""`gyre bench messages`: one message between two ranks, from 4 B to 128 MB, compared with torch's gloo and Open MPI.

A figure is half of the time of a message there and one back, both received in ordinary memory. Rank r exchanges
messages with rank r + n/2, all pairs at the same time. Ours through the engine's messages in C++ and through
torch.distributed's send and recv in Python; the peers through Python.
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

_SIZES = "4,64,1KB,4KB,16KB,64KB,256KB,1MB,4MB,16MB,64MB,128MB"
_SIZES_OVER_LINKS = "4,64KB,1MB,16MB"
_LARGEST = 1 << 32


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "messages",
        help="one message between two ranks, from 4 B to 128 MB",
        description=__doc__,
        epilog="example: gyre bench messages --ranks 2,4 --sizes 4,64KB,16MB --json messages.json",
    )
    add_common(parser, seconds=0.6)
    parser.add_argument("--sizes", help=f"in bytes (default: {_SIZES}; over links {_SIZES_OVER_LINKS})")
    parser.add_argument("--faces", default="cpp,python", help="cpp, python or both (the default)")
    parser.set_defaults(measure=measure)


def sizes_of(text: str) -> list[int]:
    sizes = [size_of(part, "--sizes") for part in text.split(",")]
    if any(not 1 <= size <= _LARGEST for size in sizes):
        raise UsageError(f"--sizes is '{text}'; 1 byte to 4 GB are possible")
    return sizes


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    sizes_of(arguments.sizes or _SIZES)
    faces = choices_of(arguments.faces, "--faces", FACES)
    effort = effort_of(arguments)
    places = places_of(arguments)
    for place in places:
        if place.ranks % 2 or (place.hosts > 1 and place.hosts % 2):
            raise UsageError(f"{place.words} do not make pairs; even numbers are needed")
    lacking = why_no_openmpi()
    if lacking is not None:
        launcher.note(f"Open MPI is left out: {lacking}")
    rows = []
    for place in places:
        sizes = sizes_of(arguments.sizes or (_SIZES if place.hosts == 1 else _SIZES_OVER_LINKS))
        turns = [_turn(launcher, place, sizes, effort, faces) for _ in range(effort.repeats)]
        rows += _rows(place, sizes, turns)
    return rows


def _turn(
    launcher: Launcher, place: Place, sizes: Sequence[int], effort: Effort, faces: Sequence[str]
) -> dict[str, Figures]:
    """Every program once, one after the other, so that a noisy minute hits all alike."""
    common = ["--sizes", ",".join(map(str, sizes)), "--seconds", str(effort.seconds)]
    found: dict[str, Figures] = {}
    # The C++ face is always there: the bound is measured in it.
    launcher.say(f"messages, {place.words}: ours through C++")
    found["cpp"] = launcher.ranks(place, [str(program("gyre-bench-rank")), "messages", *common])
    if "python" in faces:
        launcher.say(f"messages, {place.words}: ours through Python")
        found["python"] = launcher.ranks(
            place, module("gyre_messages", *common, "--store", str(launcher.file("store")))
        )
    launcher.say(f"messages, {place.words}: torch's gloo")
    found["gloo_us"] = launcher.ranks(place, module("gloo_messages", *common, "--store", str(launcher.file("store"))))
    if place.hosts == 1 and why_no_openmpi() is None:
        launcher.say(f"messages, {place.words}: Open MPI")
        found["openmpi_us"] = launcher.mpi(place, module("openmpi_messages", *common))
    return {name: figures for name, figures in found.items() if name != "cpp" or "cpp" in faces} | {
        "bound": found["cpp"]
    }


def _bound_us(place: Place, size_bytes: int, copied_bytes_per_second: float) -> float:
    """One host: a copy, as many at the same time as there are pairs. Several: what leaves each host in one direction,
    at the link's full rate, headers not allowed for."""
    if place.hosts == 1:
        return size_bytes / copied_bytes_per_second * 1e6
    from hosts import bits_per_second  # noqa: PLC0415 - a tool of the repository, not part of the package

    return float(place.ranks // place.hosts * size_bytes * 8 / bits_per_second(place.rate) * 1e6)


def _rows(place: Place, sizes: Sequence[int], turns: Sequence[dict[str, Figures]]) -> list[Row]:
    """Of one place; medians over the turns."""

    def figure(name: str, size: int) -> float:
        return float(statistics.median(turn[name]["tensor"][str(size)] for turn in turns))

    bound_rate = statistics.median(turn["bound"]["bound_bytes_per_second"] for turn in turns)
    return [
        {
            "bench": "messages",
            "bytes": size,
            "path": "tensor",
            "face": face,
            **place.columns(),
            "ours_us": figure(face, size),
            "peers": {name: figure(name, size) for name in ("gloo_us", "openmpi_us") if name in turns[0]},
            "bound_us": _bound_us(place, size, bound_rate),
        }
        for size in sizes
        for face in FACES
        if face in turns[0]
    ]
