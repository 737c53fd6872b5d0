"""`gyre bench allreduce`: one collective at a time, from 4 B to 256 MB, compared with torch's gloo and Open MPI."""

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
    places_of,
    size_of,
)
from gyre.bench.report import Row

_SIZES = "4,64,1KB,4KB,16KB,64KB,256KB,1MB,4MB,16MB,64MB,256MB"
_SIZES_OVER_LINKS = "4,64KB,1MB,4MB"
_LARGEST = 1 << 32
_CPP_WITH_TLS = "cpp, TLS"
# Our programs and the interface of each.
_OURS = {"cpp": "cpp", "python": "python", _CPP_WITH_TLS: "cpp"}
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
    parser.add_argument("--sizes", help=f"in bytes, multiples of 4 (default: {_SIZES}; over links {_SIZES_OVER_LINKS})")
    parser.add_argument("--faces", default="cpp,python", help="cpp, python or both (the default)")
    parser.add_argument(
        "--paths", default="arena,tensor", help="memory of the C++ rows: arena, tensor or both (the default)"
    )
    parser.set_defaults(measure=measure)


def sizes_of(text: str) -> list[int]:
    sizes = [size_of(part, "--sizes") for part in text.split(",")]
    if any(size < 4 or size % 4 or size > _LARGEST for size in sizes):
        raise UsageError(f"--sizes is '{text}'; multiples of 4 up to 4 GB are needed")
    return sizes


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    sizes_of(arguments.sizes or _SIZES)
    places_of(arguments)
    faces = choices_of(arguments.faces, "--faces", FACES)
    paths = choices_of(arguments.paths, "--paths", PATHS)
    effort = effort_of(arguments)
    lacking = why_no_openmpi()
    if lacking is not None:
        launcher.note(f"Open MPI is left out: {lacking}")
    rows = []
    for place in places_of(arguments):
        sizes = sizes_of(arguments.sizes or (_SIZES if place.hosts == 1 else _SIZES_OVER_LINKS))
        turns = [_turn(launcher, place, sizes, effort, faces, paths) for _ in range(effort.repeats)]
        rows += _rows(place, sizes, turns)
    return rows


def _turn(
    launcher: Launcher,
    place: Place,
    sizes: Sequence[int],
    effort: Effort,
    faces: Sequence[str],
    paths: Sequence[str],
) -> dict[str, Figures]:
    """Runs every program once, one after the other, so that a noisy minute affects all alike."""
    common = ["--sizes", ",".join(map(str, sizes)), "--seconds", str(effort.seconds)]
    found: dict[str, Figures] = {}
    # The C++ program always runs: it measures the bound.
    launcher.say(f"allreduce, {place.words}: ours through C++")
    wanted = ",".join(paths) if "cpp" in faces else "none"
    command = [str(program("gyre-bench-rank")), "allreduce", *common, "--paths", wanted]
    found["cpp"] = launcher.ranks(place, command, _NO_FUSION)
    if "cpp" in faces and place.hosts > 1:
        launcher.say(f"allreduce, {place.words}: ours through C++ with TLS 1.3")
        found[_CPP_WITH_TLS] = launcher.ranks(place, command, {**_NO_FUSION, "GYRE_TLS": "1"})
    if "python" in faces:
        launcher.say(f"allreduce, {place.words}: ours through Python")
        found["python"] = launcher.ranks(place, module("gyre_allreduce", *common), _NO_FUSION)
    launcher.say(f"allreduce, {place.words}: torch's gloo")
    found["gloo_us"] = launcher.ranks(place, module("gloo_allreduce", *common, "--store", str(launcher.file("store"))))
    if place.hosts == 1 and why_no_openmpi() is None:
        launcher.say(f"allreduce, {place.words}: Open MPI")
        found["openmpi_us"] = launcher.mpi(place, module("openmpi_allreduce", *common))
    return found


def _rows(place: Place, sizes: Sequence[int], turns: Sequence[dict[str, Figures]]) -> list[Row]:
    """The rows of one place; medians over the turns."""
    bound_rate = statistics.median(turn["cpp"]["bound_bytes_per_second"] for turn in turns)
    rows = []
    for size in sizes:
        peers = {
            name: statistics.median(turn[name]["tensor"][str(size)] for turn in turns)
            for name in ("gloo_us", "openmpi_us")
            if name in turns[0]
        }
        for program_name, face in _OURS.items():
            for path in PATHS:
                if path not in turns[0].get(program_name, {}):
                    continue
                ours = statistics.median(turn[program_name][path][str(size)] for turn in turns)
                rows.append(
                    {
                        "bench": "allreduce",
                        "bytes": size,
                        "path": path,
                        "face": face,
                        **place.columns(),
                        **({"tls": True} if program_name == _CPP_WITH_TLS else {}),
                        "ours_us": ours,
                        "peers": peers,
                        "bound_us": place.bound_us(size, bound_rate),
                        **_sent(place, size, turns[0][program_name].get("sent_bytes", {}).get(path, {})),
                    }
                )
    return rows


def _sent(place: Place, size: int, sent_bytes: dict[str, list[float]]) -> Row:
    """The bytes that left each host per collective, as counted by the links: including frame headers, excluding
    TCP's."""
    if place.hosts == 1 or str(size) not in sent_bytes:
        return {}
    return {"sent_bytes": max(sent_bytes[str(size)]), "sent_bound_bytes": place.sent_bound_bytes(size)}
