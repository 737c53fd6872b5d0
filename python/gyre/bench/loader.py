"""`gyre bench loader`: how fast samples become batches, compared with the alternatives and with a bound.

A case is one set of files and the batches to make from it: our program, those of the peers, and the program that only
does the unavoidable work. Each is a command that prints {"per_second": …} (gyre.bench.loaders). To add cases, or peers
of a case, add entries to CASES.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gyre.bench.errors import BenchError, UsageError
from gyre.bench.launch import Launcher, program
from gyre.bench.report import Row

_TIMEOUT_SECONDS = 900
_LAST_WORDS = 2000
_MOST_IMAGES = 1_000_000
VOLUME_SIZES = (16, 32, 64, 128)


@dataclass(frozen=True)
class Setting:
    """The arguments of all programs of a run."""

    data: Path
    threads: int
    seconds: float
    volume_size: int = 128
    tensorflow: str | None = None  # The Python that has TensorFlow.

    @property
    def options(self) -> list[str]:
        return ["--threads", str(self.threads), "--seconds", f"{self.seconds:g}"]


Command = Callable[[Setting], list[str]]


def module(name: str, *arguments: str) -> list[str]:
    """A program in Python of gyre.bench.loaders."""
    return [sys.executable, "-P", "-m", f"gyre.bench.loaders.{name}", *arguments]


@dataclass(frozen=True)
class Peer:
    """Another way to load a case's files. `needs`: modules without which it is left out, with a note; those of
    `tensorflow` can be another Python's."""

    command: Command
    needs: tuple[str, ...] = ()

    def missing(self, setting: Setting) -> list[str]:
        elsewhere = ["tensorflow"] if setting.tensorflow else []
        return [name for name in self.needs if name not in elsewhere and importlib.util.find_spec(name) is None]


@dataclass(frozen=True)
class Case:
    """`prepare` writes the files that the case needs below a folder, unless they exist."""

    what: str
    prepare: Callable[[Path, argparse.Namespace], None]
    ours: Command
    bound: Command | None = None
    peers: Mapping[str, Peer] = field(default_factory=dict)


def write_images(layout: str) -> Callable[[Path, argparse.Namespace], None]:
    def prepare(data: Path, arguments: argparse.Namespace) -> None:
        from gyre.datasets.imagenet import Recipe, write_images  # noqa: PLC0415 - loads torch

        if not (data / layout).exists():
            write_images(data / layout, {"train": arguments.images}, Recipe(size=arguments.size), layout=layout)

    return prepare


def both_layouts(data: Path, arguments: argparse.Namespace) -> None:
    for layout in ("tfrecord", "folder"):
        write_images(layout)(data, arguments)


def shards(setting: Setting, *more: str) -> list[str]:
    keys = ("--key", "image/encoded", "--label", "image/class/label")
    return module("gyre_images", str(setting.data / "tfrecord" / "train-*"), *keys, *setting.options, *more)


def folder(setting: Setting, *more: str) -> list[str]:
    return module("gyre_images", str(setting.data / "folder" / "train"), *setting.options, *more)


def bare_decode(setting: Setting) -> list[str]:
    files = sorted(str(path) for path in (setting.data / "tfrecord").glob("train-*"))
    return [str(program("gyre-bench-decode")), *files, "--key", "image/encoded", *setting.options]


def pillow(setting: Setting) -> list[str]:
    return module("pillow_images", str(setting.data / "folder" / "train"), *setting.options)


PILLOW = Peer(pillow, needs=("PIL",))


_ARRAY_VALUES = 32 * 1024
_ARRAY_ROWS_PER_GROUP = 128  # 8 MB.
_ARRAYS_PER_IMAGE = 2  # So that --images says how large this set is, too.
_SMALL_BUDGET = 64 << 20  # Half of it for row groups.


def write_arrays(data: Path, arguments: argparse.Namespace) -> None:
    """Of int16, 64 KB each: 128 MB, unless --images says otherwise."""
    if (data / "arrays").exists():
        return
    try:
        import pyarrow as pa  # noqa: PLC0415 - these cases alone need it
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise BenchError("the Parquet cases need pyarrow: pip install 'gyre-train[parquet]'") from error
    import numpy as np  # noqa: PLC0415

    (data / "arrays").mkdir(parents=True)
    values = np.random.default_rng(0).poisson(20, _ARRAYS_PER_IMAGE * arguments.images * _ARRAY_VALUES).astype(np.int16)
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(values), _ARRAY_VALUES)})
    pq.write_table(table, data / "arrays" / "train-0.parquet", row_group_size=_ARRAY_ROWS_PER_GROUP)


def parquet_images(setting: Setting) -> list[str]:
    return module("gyre_images", str(setting.data / "parquet" / "train-*"), "--blocks", *setting.options)


def parquet_arrays(setting: Setting, *more: str) -> list[str]:
    files = str(setting.data / "arrays" / "train-*")
    return module("gyre_arrays", files, "--values", str(_ARRAY_VALUES), *setting.options, *more)


def pyarrow_rows(layout: str, *more: str) -> Peer:
    def command(setting: Setting) -> list[str]:
        return module("pyarrow_rows", str(setting.data / layout), *setting.options, *more)

    return Peer(command, needs=("pyarrow", "PIL"))


def write_volumes(plain: bool) -> Callable[[Path, argparse.Namespace], None]:
    def prepare(data: Path, arguments: argparse.Namespace) -> None:
        from gyre.datasets.cosmo import write_volumes as write  # noqa: PLC0415 - only these cases need it

        folder = data / volumes_folder(plain)
        if not folder.exists():
            counts = {"train": arguments.volumes, "validation": 1}
            write(folder, counts, arguments.volume_size, seed=0, plain=plain, processes=1)

    return prepare


def volumes_folder(plain: bool) -> str:
    return "volumes-plain" if plain else "volumes"


def volumes(setting: Setting, *more: str, plain: bool = False) -> list[str]:
    files = str(setting.data / volumes_folder(plain) / "train" / "*.tfrecord*")
    return module("gyre_volumes", files, "--size", str(setting.volume_size), *setting.options, *more)


def tensorflow_volumes(*more: str, plain: bool = False) -> Peer:
    """By the file's path, because the Python that has TensorFlow need not have Gyre."""

    def command(setting: Setting) -> list[str]:
        program_file = Path(__file__).parent / "loaders" / "tensorflow_volumes.py"
        python = setting.tensorflow or sys.executable
        files = str(setting.data / volumes_folder(plain) / "train" / "*.tfrecord*")
        compression = ["--compression", "" if plain else "GZIP"]
        size = ["--size", str(setting.volume_size)]
        return [python, "-P", str(program_file), files, *size, *compression, *setting.options, *more]

    return Peer(command, needs=("tensorflow",))


CASES = {
    "images": Case("JPEG in TFRecord", both_layouts, shards, bound=bare_decode, peers={"torch + Pillow": PILLOW}),
    "folder": Case("JPEG, a file each", both_layouts, folder, bound=bare_decode, peers={"shards": Peer(shards)}),
    "cold": Case(
        "JPEG, a file each, not in the page cache",
        both_layouts,
        lambda setting: folder(setting, "--cold"),
        peers={"shards": Peer(lambda setting: shards(setting, "--cold"))},
    ),
    "parquet": Case(
        "JPEG in Parquet", write_images("parquet"), parquet_images, peers={"pyarrow + Pillow": pyarrow_rows("parquet")}
    ),
    "parquet-arrays": Case(
        "int16 arrays in Parquet", write_arrays, parquet_arrays, peers={"pyarrow": pyarrow_rows("arrays", "--arrays")}
    ),
    "parquet-arrays-uncached": Case(
        "the same, in a memory budget that holds few row groups",
        write_arrays,
        lambda setting: parquet_arrays(setting, "--budget", str(_SMALL_BUDGET)),
        peers={"pyarrow": pyarrow_rows("arrays", "--arrays")},
    ),
    "volumes": Case(
        "volumes in gzip TFRecord, int16", write_volumes(False), volumes, peers={"tf.data": tensorflow_volumes()}
    ),
    "volumes-log": Case(
        "the same, float32 log(1 + x)",
        write_volumes(False),
        lambda setting: volumes(setting, "--log"),
        peers={"tf.data": tensorflow_volumes("--log")},
    ),
    "volumes-plain": Case(
        "volumes in TFRecord, int16",
        write_volumes(True),
        lambda setting: volumes(setting, plain=True),
        peers={"tf.data": tensorflow_volumes(plain=True)},
    ),
}


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "loader",
        help="samples to batches per second, compared with a bare decoder and other loaders",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: gyre bench loader images --threads 2 --repeats 3",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--threads", type=int, help="threads of each loader (default: the cores of this process)")
    parser.add_argument("--images", type=int, default=1024, help="images to read (default: 1024, about 100 MB)")
    parser.add_argument("--size", type=int, default=500, help="their long side in pixels (default: 500)")
    parser.add_argument("--volumes", type=int, default=32, help="volumes to read (default: 32)")
    parser.add_argument("--volume-size", type=int, default=128, help="voxels per side (default: 128)")
    parser.add_argument("--tensorflow", metavar="PYTHON", help="the Python that has TensorFlow, if not this one")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the files there, for the next run")
    parser.add_argument("--seconds", type=float, default=4.0, help="time to measure each figure (default: 4)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="turns of every program, of which the medians count (default: 3)"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to this file")
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="what to print (default: table)"
    )
    parser.set_defaults(measure=measure)


def _check(arguments: argparse.Namespace) -> None:
    for name in arguments.cases:
        if name not in CASES:
            raise UsageError(f"there is no case '{name}'; there are: {', '.join(CASES)}")
    limits = {
        "threads": (1, 1024),
        "images": (64, _MOST_IMAGES),
        "size": (16, 4096),
        "volumes": (4, _MOST_IMAGES),
        "repeats": (1, 100),
    }
    for name, (least, most) in limits.items():
        value = getattr(arguments, name)
        if value is not None and not least <= value <= most:
            raise UsageError(f"--{name} is {value}; {least} to {most} are possible")
    if arguments.volume_size not in VOLUME_SIZES:
        raise UsageError(f"--volume-size is {arguments.volume_size}; {', '.join(map(str, VOLUME_SIZES))} are possible")
    if not 0 < arguments.seconds <= 60:
        raise UsageError(f"--seconds is {arguments.seconds:g}; more than 0 and at most 60 are needed")


def run(command: Sequence[str]) -> dict[str, float]:
    """The program's output. BenchError has its last lines."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{command[0]} has not ended within {_TIMEOUT_SECONDS} seconds") from error
    if done.returncode != 0:
        raise BenchError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-_LAST_WORDS:].strip()}")
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    if not isinstance(figures, dict) or not figures.get("per_second", 0) > 0:
        raise BenchError(f"{' '.join(command)} printed no rate: {done.stdout[-_LAST_WORDS:].strip()}")
    return figures


def _row(name: str, case: Case, setting: Setting, repeats: int, launcher: Launcher) -> Row:
    commands: dict[str, list[str]] = {"ours": case.ours(setting)}
    if case.bound is not None:
        commands["bound"] = case.bound(setting)
    for peer_name, peer in case.peers.items():
        missing = peer.missing(setting)
        if missing:
            launcher.notes.append(f"{peer_name} is not measured: this Python has no {', '.join(missing)}")
        else:
            commands[f"peer {peer_name}"] = peer.command(setting)
    turns: dict[str, list[dict[str, float]]] = {which: [] for which in commands}
    for _ in range(repeats):  # In turns, so that other load on the machine affects all of them.
        for which, command in commands.items():
            turns[which].append(run(command))
    rates = {which: statistics.median(turn["per_second"] for turn in taken) for which, taken in turns.items()}
    ours = {key: statistics.median(turn[key] for turn in turns["ours"]) for key in turns["ours"][0]}
    return {
        "bench": "loader",
        "case": name,
        "what": case.what,
        "threads": setting.threads,
        "ours_per_second": rates["ours"],
        "bound_per_second": rates.get("bound"),
        "peers_per_second": {peer: rates.get(f"peer {peer}") for peer in case.peers},
        **{key: value for key, value in ours.items() if key != "per_second"},
    }


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    _check(arguments)
    from gyre.core import _core  # noqa: PLC0415 - only this verb needs it here

    threads = arguments.threads or _core.usable_cores()
    with tempfile.TemporaryDirectory(prefix="gyre-bench-") as temporary:
        data = arguments.data or Path(temporary)
        setting = Setting(data, threads, arguments.seconds, arguments.volume_size, arguments.tensorflow)
        rows = []
        for name in arguments.cases or CASES:
            CASES[name].prepare(setting.data, arguments)
            rows.append(_row(name, CASES[name], setting, arguments.repeats, launcher))
    return rows
