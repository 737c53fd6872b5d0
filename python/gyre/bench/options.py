"""Command-line options shared by the commands of `gyre bench`."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from gyre.bench.errors import UsageError
from gyre.bench.launch import Place

_MOST_RANKS = 256
_MOST_HOSTS = 64
_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
FACES = ("cpp", "python")
PATHS = ("arena", "tensor")
# models.MODELS, without loading torch.
MODEL_NAMES = ("resnet50", "resnet101", "vgg16", "cifar10", "cosmoflow")


@dataclass(frozen=True)
class Effort:
    """How much time one figure can take."""

    seconds: float
    repeats: int


def add_common(parser: argparse.ArgumentParser, *, seconds: float) -> None:
    """The options of every command whose ranks are alike."""
    parser.add_argument(
        "--ranks", help="total numbers of ranks, such as 2,4 (the default; with --hosts: one on each host)"
    )
    parser.add_argument(
        "--hosts",
        default="1",
        help="numbers of hosts, such as 2,4: network namespaces of this machine, joined by links of --rate (as root)",
    )
    parser.add_argument(
        "--rate", default="1gbit", help="of each host's link in each direction, such as 100mbit (default: 1gbit)"
    )
    add_output(parser, seconds=seconds)


def add_output(parser: argparse.ArgumentParser, *, seconds: float) -> None:
    """The options of how long to measure, and where the figures go."""
    parser.add_argument(
        "--seconds", type=float, default=seconds, help=f"time to measure each figure (default: {seconds:g})"
    )
    parser.add_argument(
        "--repeats", type=int, default=1, help="turns of every program, of which the medians count (default: 1)"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to this file")
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="what to print (default: table)"
    )


def integers(text: str, option: str, low: int, high: int) -> list[int]:
    """ "2,4" as numbers. UsageError names the option."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or any(number < low or number > high for number in numbers):
        raise UsageError(f"{option} is '{text}'; numbers from {low} to {high}, separated by commas, are needed")
    return numbers


def checked_model(name: str) -> str:
    """UsageError for an unknown one."""
    if name not in MODEL_NAMES:
        raise UsageError(f"there is no model '{name}'; there are: {', '.join(MODEL_NAMES)}")
    return name


def places_of(arguments: argparse.Namespace) -> list[Place]:
    """Every number of hosts with every number of ranks."""
    if not re.fullmatch(r"\d+(\.\d+)?(kbit|mbit|gbit)", arguments.rate) or float(arguments.rate[:-4]) == 0:
        raise UsageError(f"--rate is '{arguments.rate}'; a rate such as 100mbit or 1gbit is needed")
    places = []
    for hosts in integers(arguments.hosts, "--hosts", 1, _MOST_HOSTS):
        wanted = arguments.ranks or ("2,4" if hosts == 1 else str(hosts))
        for ranks in integers(wanted, "--ranks", 1, _MOST_RANKS):
            if ranks % hosts:
                raise UsageError(f"--ranks {ranks} cannot be divided over --hosts {hosts}")
            places.append(Place(ranks, hosts, arguments.rate))
    return places


def effort_of(arguments: argparse.Namespace) -> Effort:
    if not 0 <= arguments.seconds <= 60:
        raise UsageError(f"--seconds is {arguments.seconds:g}; 0 (each figure once) to 60 are possible")
    if not 1 <= arguments.repeats <= 100:
        raise UsageError(f"--repeats is {arguments.repeats}; 1 to 100 are possible")
    return Effort(arguments.seconds, arguments.repeats)


def size_of(text: str, option: str) -> int:
    """ "64KB" in bytes: powers of 1024."""
    digits = text.strip().rstrip("KMGBkmgb")
    unit = text.strip()[len(digits) :].upper()
    if not digits.isdigit() or unit not in _UNITS:
        raise UsageError(f"{option} has '{text}'; sizes such as 4, 64KB or 16MB are needed")
    return int(digits) * _UNITS[unit]


def choices_of(text: str, option: str, known: tuple[str, ...]) -> list[str]:
    """ "cpp,python", all of them known. UsageError otherwise."""
    chosen = text.split(",")
    for word in chosen:
        if word not in known:
            raise UsageError(f"{option} has '{word}'; there are: {', '.join(known)}")
    return chosen
