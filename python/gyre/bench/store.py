"""`gyre bench store`: how fast the nodes of a store read, compared with the page cache, the link and bare TLS.

Hosts are network namespaces of this machine, joined by links of a rate (as root, from a checkout: ./dev bench store).
The cases:

  local      large readings of what lies on this node, compared with read() of the same files in the page cache
  small      objects of 256 KB that lie on this node, likewise
  encrypted  large readings of what lies encrypted on this node, compared with AES-256-GCM alone
  peer       files that another node owns, over a link of --rate; the bound is what TCP can carry over it
  small-peer objects of 256 KB that another node owns, over the loopback; the bound is one bare TLS connection
  aggregate  four nodes read all that the others own, over links of --rate, compared with one that does
  listing    --entries files: the daemon's memory for each, and a listing, which asks no server
  mount      reading in the folder that `gyre store mount` shows, compared with plain files, by read() and by tf.data
  capped     four workers train on 32^3 volumes with a step of 0.44 s, from a source capped at 14 and at 8 Mbit/s, and
             from the store: iterations per second (claim C12)
  cache      the first and the second epoch from a capped source: without a store, with one, and with one on a disk that
             holds half of the set (claim C10)
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gyre.bench.data_places import (
    INTERNET_PACKET_BYTES,
    Network,
    Store,
    figures,
    medians,
    megabytes,
    random_files,
    rate_row,
    reader,
    tls_rate,
    together,
    web_server,
    write_volumes,
)
from gyre.bench.errors import BenchError, UsageError
from gyre.bench.launch import Launcher, program
from gyre.bench.options import add_output, effort_of
from gyre.bench.report import Row
from gyre.bench.stage import cases_here, checked_rate, chosen_cases

_FEWEST_FILES = 16
_LARGE_BYTES = 16 << 20
_SMALL_BYTES = 256 << 10
_GOOD_SHARE_OF_PAGE_CACHE = 0.9
_GOOD_SMALL_READS = 20_000
_GOOD_SHARE_OF_LINK = 0.93
_GOOD_SHARE_OF_TLS = 0.85
_GOOD_GROWTH = 3.7
_GOOD_SHARE_THROUGH_MOUNT = 0.7
_GOOD_SHARE_OF_LIMIT = 0.9
_GOOD_ENTRY_BYTES = 128
_NODES = 4
_CAPS = (14e6 / 8, 8e6 / 8)  # Bytes per second, in all.
_STORE_RATE = "200mbit"
_STEP_SECONDS = 0.44
_BATCH = 4
_VOLUME_SIZE = 32
_MOST_ENTRIES = 10_000_000


@dataclass(frozen=True)
class Setting:
    launcher: Launcher
    megabytes: int
    rate: str
    seconds: float
    repeats: int
    entries: int
    iterations: int
    tensorflow: str | None
    cores: int

    @property
    def for_seconds(self) -> list[str]:
        return ["--seconds", str(max(0.05, self.seconds))]

    def files(self, size_bytes: int) -> Path:
        """A folder with about so many megabytes in files of that size, or in 16 smaller ones: each node owns some."""
        folder = self.launcher.file("set")
        count = max(_FEWEST_FILES, megabytes(self.megabytes) // size_bytes)
        random_files(folder, count, min(size_bytes, megabytes(self.megabytes) // _FEWEST_FILES))
        return folder


def _read_rate(network: Network, host: int, command: Sequence[str], rate: str = "bytes_per_second") -> float:
    return float(figures(network.on(host, command))[rate])


def _local_rows(setting: Setting, case: str, size_bytes: int, what: str, unit: str, rate: str) -> list[Row]:
    folder = setting.files(size_bytes)
    network = Network.loopback()
    rows = []
    with Store(setting.launcher, network, 1, [str(folder)]) as store:
        store.wait_until_fetched()
        for threads in sorted({1, setting.cores}):
            words = ["--threads", str(threads), *setting.for_seconds]
            rates = medians(
                setting.repeats,
                {
                    "ours": partial(_read_rate, network, 0, reader(store.url(0), *words), rate),
                    "read": partial(_read_rate, network, 0, reader(str(folder), *words), rate),
                },
            )
            shown = f"{what}, {threads} thread{'s' if threads > 1 else ''}"
            goal = {"goal": _GOOD_SHARE_OF_PAGE_CACHE} if case == "local" else {"goal_value": _GOOD_SMALL_READS}
            rows.append({**rate_row("store", case, shown, unit, rates["ours"], bound=rates["read"]), **goal})
    return rows


def local(setting: Setting) -> list[Row]:
    return _local_rows(setting, "local", _LARGE_BYTES, "local, 4 MB a reading", "B/s", "bytes_per_second")


def small(setting: Setting) -> list[Row]:
    return _local_rows(setting, "small", _SMALL_BYTES, "local, objects of 256 KB", "reads/s", "reads_per_second")


def encrypted(setting: Setting) -> list[Row]:
    folder = setting.files(_LARGE_BYTES)
    network = Network.loopback()
    rows = []
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
        Store(setting.launcher, network, 1, [str(folder)], ["--encrypt"], key_folder=Path(memory)) as store,
    ):
        store.wait_until_fetched()
        for threads in sorted({1, setting.cores}):
            words = ["--threads", str(threads), *setting.for_seconds]
            bare = [str(program("gyre-bench-store")), "decrypt", *words]
            rates = medians(
                setting.repeats,
                {
                    "ours": partial(_read_rate, network, 0, reader(store.url(0), *words)),
                    "bare": partial(_read_rate, network, 0, bare),
                },
            )
            shown = f"local, encrypted, 4 MB a reading, {threads} thread{'s' if threads > 1 else ''}"
            rows.append(rate_row("store", "encrypted", shown, "B/s", rates["ours"], bound=rates["bare"]))
    return rows


def peer(setting: Setting) -> list[Row]:
    folder = setting.files(_LARGE_BYTES)
    network = Network.of_hosts(setting.launcher, 2, setting.rate)
    words = ["--owned-by", "1", "--threads", "2", *setting.for_seconds]
    with Store(setting.launcher, network, 2, [str(folder)]) as store:
        store.wait_until_fetched()
        command = reader(store.url(0), *words)
        rates = medians(setting.repeats, {"ours": lambda: _read_rate(network, 0, command)})
        _must_not_ask_the_source(store, folder)
    what = f"from another node, over {setting.rate}"
    bound = network.stream_limit()
    return [rate_row("store", "peer", what, "B/s", rates["ours"], bound=bound, goal=_GOOD_SHARE_OF_LINK)]


def _must_not_ask_the_source(store: Store, folder: Path) -> None:
    """BenchError where more was read from the source than the set has: then it is not the nodes that were measured."""
    total = sum(path.stat().st_size for path in folder.iterdir())
    read = sum(int(store.status(node)["source_bytes"]) for node in range(store.count))
    if read > total:
        raise BenchError(f"the nodes have read {read} bytes from the source, of {total}")


def small_peer(setting: Setting) -> list[Row]:
    folder = setting.files(_SMALL_BYTES)
    network = Network.loopback()
    rows = []
    with Store(setting.launcher, network, 2, [str(folder)]) as store:
        store.wait_until_fetched()
        for threads in sorted({1, setting.cores}):
            words = ["--owned-by", "1", "--threads", str(threads), *setting.for_seconds]
            command = reader(store.url(0), *words)
            rates = medians(
                setting.repeats,
                {
                    "ours": partial(_read_rate, network, 0, command, "reads_per_second"),
                    "tls": lambda: tls_rate(network, 1, 0, _SMALL_BYTES, setting.seconds) / _SMALL_BYTES,
                },
            )
            what = f"from another node, objects of 256 KB, loopback, {threads} thread{'s' if threads > 1 else ''}"
            goal = _GOOD_SHARE_OF_TLS
            rows.append(rate_row("store", "small-peer", what, "reads/s", rates["ours"], bound=rates["tls"], goal=goal))
        _must_not_ask_the_source(store, folder)
    return rows


def aggregate(setting: Setting) -> list[Row]:
    folder = setting.files(_LARGE_BYTES // 4)
    network = Network.of_hosts(setting.launcher, _NODES, setting.rate)
    with Store(setting.launcher, network, _NODES, [str(folder)]) as store:
        store.wait_until_fetched()

        def reading(node: int) -> list[str]:
            words = ["--not-owned-by", str(node), "--threads", "4", *setting.for_seconds]
            return network.on(node, reader(store.url(node), *words))

        def all_nodes() -> float:
            _, printed = together(setting.launcher, [reading(node) for node in range(_NODES)])
            return sum(float(json.loads(text.strip().splitlines()[-1])["bytes_per_second"]) for text in printed)

        rates = medians(
            setting.repeats, {"one": lambda: float(figures(reading(0))["bytes_per_second"]), "all": all_nodes}
        )
        _must_not_ask_the_source(store, folder)
    growth = rates["all"] / rates["one"]
    shown = f"{_NODES} nodes read from each other over {setting.rate}, compared with one"
    row = rate_row("store", "aggregate", shown, "x", growth, bound=_NODES, one=rates["one"], all=rates["all"])
    return [{**row, "goal_value": _GOOD_GROWTH}]


def _resident_bytes(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"process {process} has ended")


def listing(setting: Setting) -> list[Row]:
    network = Network.loopback()
    resident, seconds = [], 0.0
    for entries in (1, setting.entries):
        folder = setting.launcher.file("entries")
        for number in range(entries):
            below = folder / f"folder_{number // 4096:04d}"
            below.mkdir(parents=True, exist_ok=True)
            (below / f"object_{number:08d}.tfrecord").write_bytes(b"x")
        with Store(setting.launcher, network, 1, [str(folder)], ["--on-demand"]) as store:
            shutil.rmtree(folder)  # So that nothing can be asked.
            resident.append(_resident_bytes(store.daemons[0].pid))
            seconds, printed = together(setting.launcher, [[str(program("gyre")), "store", "list",
                                                            "--store-dir", str(store.store_dir(0))]])  # fmt: skip
            if len(printed[0].splitlines()) != entries:
                raise BenchError(f"the store lists {len(printed[0].splitlines())} files, not {entries}")
    per_entry = (resident[1] - resident[0]) / setting.entries
    what = f"memory of the daemon for each of {setting.entries} files"
    rows = [rate_row("store", "listing", what, "B/object", per_entry, bound=_GOOD_ENTRY_BYTES, goal=1.0)]
    what = f"`gyre store list` of {setting.entries} files, without their source"
    return [*rows, rate_row("store", "listing", what, "files/s", setting.entries / seconds)]


def _is_mounted(place: Path) -> bool:
    return any(line.split()[1] == str(place) for line in Path("/proc/mounts").read_text().splitlines())


def mount(setting: Setting) -> list[Row]:
    if shutil.which("fusermount3") is None or not Path("/dev/fuse").exists():
        setting.launcher.note("mount is not measured: /dev/fuse or fusermount3 (package fuse3) is missing")
        return []
    folder = setting.files(_LARGE_BYTES)
    network = Network.loopback()
    place = setting.launcher.file("mounted")
    place.mkdir()
    with Store(setting.launcher, network, 1, [str(folder)]) as store:
        store.wait_until_fetched()
        command = [str(program("gyre")), "store", "mount", "--store-dir", str(store.store_dir(0)), str(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as mounted:
            try:
                assert mounted.stdout is not None
                if "is mounted in" not in mounted.stdout.readline():
                    raise BenchError(f"{' '.join(command)} does not mount")
                return _mount_rows(setting, network, place, folder)
            finally:
                mounted.send_signal(signal.SIGTERM)
                mounted.wait(30)
                while _is_mounted(place):
                    time.sleep(0.05)


def _mount_rows(setting: Setting, network: Network, place: Path, folder: Path) -> list[Row]:
    def rate(where: Path) -> float:
        return _read_rate(network, 0, reader(str(where), "--piece-bytes", str(1 << 20), *setting.for_seconds))

    rate(place)  # The kernel keeps what it has read.
    rates = medians(setting.repeats, {"ours": lambda: rate(place), "plain": lambda: rate(folder)})
    goal = _GOOD_SHARE_THROUGH_MOUNT
    rows = [rate_row("store", "mount", "through the mount, read()", "B/s", rates["ours"], bound=rates["plain"],
                     goal=goal)]  # fmt: skip
    if setting.tensorflow is None:
        setting.launcher.note("tf.data is not measured: --tensorflow names a Python that has TensorFlow")
        return rows
    script = str(Path(__file__).parent / "loaders" / "tensorflow_bytes.py")

    def tensorflow(where: Path) -> float:
        seconds = str(max(0.05, setting.seconds))
        return float(
            figures([str(setting.tensorflow), "-P", script, str(where), "--seconds", seconds])["bytes_per_second"]
        )

    rates = medians(setting.repeats, {"ours": lambda: tensorflow(place), "plain": lambda: tensorflow(folder)})
    what = "through the mount, tf.data"
    return [*rows, rate_row("store", "mount", what, "B/s", rates["ours"], bound=rates["plain"], goal=goal)]


def _iterations_per_second(setting: Setting, network: Network, urls: Sequence[str]) -> float:
    """Of workers on the first hosts, each with its URL of the set."""
    ready = [setting.launcher.file("ready") for _ in urls]
    go = setting.launcher.file("go")
    commands = [
        network.on(
            rank,
            [
                sys.executable, "-P", "-m", "gyre.bench.loaders.paced_volumes", url, "--size", str(_VOLUME_SIZE),
                "--rank", str(rank), "--world-size", str(len(urls)), "--batch", str(_BATCH),
                "--step-seconds", str(_STEP_SECONDS), "--ready", str(ready[rank]), "--go", str(go),
            ],
        )
        for rank, url in enumerate(urls)
    ]  # fmt: skip
    ended = threading.Event()

    def let_go() -> None:
        while not ended.wait(0.005):
            if all(file.exists() for file in ready):
                go.touch()
                return

    starter = threading.Thread(target=let_go)
    starter.start()
    try:
        _, printed = together(setting.launcher, commands)
    finally:
        ended.set()
        starter.join()
    workers = [json.loads(text.strip().splitlines()[-1]) for text in printed]
    spent = max(worker["ended"] for worker in workers) - min(worker["began"] for worker in workers)
    return float(sum(worker["iterations"] for worker in workers) / len(workers) / spent)


def capped(setting: Setting) -> list[Row]:
    folder = setting.launcher.file("volumes")
    folder.mkdir()
    names = setting.iterations * _BATCH * _NODES
    volumes = write_volumes(folder, different=8, names=names, size=_VOLUME_SIZE)
    network = Network.of_hosts(setting.launcher, _NODES + 1, _STORE_RATE, INTERNET_PACKET_BYTES)
    per_iteration = volumes.plain_bytes / setting.iterations
    share = network.stream_share()
    rows = []

    def row(what: str, rate: float, limit: float) -> Row:
        return rate_row("store", "capped", what, "iterations/s", rate, bound=limit, goal=_GOOD_SHARE_OF_LIMIT)

    with web_server(setting.launcher, network, _NODES, folder) as index:
        url = f"{index}plain/"
        with Store(setting.launcher, network, _NODES, [url]) as store:
            store.wait_until_fetched()
            stored = [store.url(node) for node in range(_NODES)]
            from_store = medians(setting.repeats, {"ours": lambda: _iterations_per_second(setting, network, stored)})[
                "ours"
            ]
        limit = min(1 / _STEP_SECONDS, _NODES * network.stream_limit() / per_iteration)
        rows.append(row(f"from the store, links of {_STORE_RATE}", from_store, limit))
        for cap in _CAPS:
            network.shape(_NODES, cap)
            capped_limit = min(1 / _STEP_SECONDS, cap * share / per_iteration)
            direct = medians(
                setting.repeats, {"ours": lambda: _iterations_per_second(setting, network, [url] * _NODES)}
            )["ours"]
            name = f"a source of {cap * 8e-6:g} Mbit/s"
            rows.append(row(f"from {name}", direct, capped_limit))
            rows.append(
                rate_row("store", "capped", f"the store, compared with {name}", "x", from_store / direct,
                         bound=limit / capped_limit)
            )  # fmt: skip
    return rows


def _epochs(network: Network, place: str, prefix: Sequence[str] = ()) -> list[float]:
    """Bytes per second of the first epoch and of the second."""
    printed = figures(network.on(0, [*prefix, *reader(place, "--threads", "4", "--rounds", "2")]))
    per_round = printed["bytes"] / 2
    return [per_round / seconds for seconds in printed["round_seconds"]]


def cache(setting: Setting) -> list[Row]:
    folder = setting.files(_SMALL_BYTES * 4)
    total = sum(path.stat().st_size for path in folder.iterdir())
    network = Network.of_hosts(setting.launcher, 2, setting.rate)
    rows = []

    def row(what: str, rate: float, bound: float, **more: Any) -> Row:
        return rate_row("store", "cache", what, "B/s", rate, bound=bound, **more)

    bound = network.stream_limit()
    memory = _read_rate(network, 0, reader(str(folder), "--threads", "4", *setting.for_seconds))
    with web_server(setting.launcher, network, 1, folder) as url:
        for number, rate in enumerate(_epochs(network, url)):
            rows.append(row(f"no store, epoch {number + 1}", rate, bound))
        with Store(setting.launcher, network, 1, [url], ["--on-demand"]) as store:
            first, second = _epochs(network, store.url(0))
        rows.append(row("a store, epoch 1", first, bound))
        rows.append(row("a store, epoch 2", second, memory))
        rows += _small_disk(setting, network, url, total, bound, memory, row)
    return rows


def _small_disk(
    setting: Setting, network: Network, url: str, total: int, link: float, memory: float, row: Callable[..., Row]
) -> list[Row]:
    """With a disk of half the set: a tmpfs that only the daemon and the reader see."""
    disk = setting.launcher.file("disk")
    disk.mkdir()
    mounts = f'mount -t tmpfs -o size={total // 2},mode=755 none "{disk}" && exec "$@"'
    prefix = ["unshare", "-m", "--propagation", "private", "sh", "-c", mounts, "sh"]
    with Store(setting.launcher, network, 1, [url], ["--on-demand"], prefix, place=disk) as store:
        inside = ["nsenter", "-m", "-t", str(store.daemons[0].pid)]
        first, second = _epochs(network, store.url(0), inside)
        kept = int(store.status(0, inside)["kept_bytes"]) / total
    expected = 1 / ((1 - kept) / link + kept / memory)
    return [
        row("a store on half the disk, epoch 1", first, link),
        row("a store on half the disk, epoch 2", second, expected, kept_share=kept),
    ]


CASES: dict[str, Callable[[Setting], list[Row]]] = {
    "local": local,
    "small": small,
    "encrypted": encrypted,
    "peer": peer,
    "small-peer": small_peer,
    "aggregate": aggregate,
    "listing": listing,
    "mount": mount,
    "capped": capped,
    "cache": cache,
}
_WITHOUT_HOSTS = ("local", "small", "encrypted", "small-peer", "listing", "mount")


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "store",
        help="reading from the nodes of a store, compared with the page cache, the link and bare TLS",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: ./dev bench store local small peer --megabytes 256",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--megabytes", type=int, default=256, help="of each set (default: 256)")
    parser.add_argument("--rate", default="1gbit", help="of the links (default: 1gbit)")
    parser.add_argument("--entries", type=int, default=327_680, help="files of listing (default: 327680)")
    parser.add_argument("--iterations", type=int, default=10, help="of capped (default: 10)")
    parser.add_argument("--tensorflow", metavar="PYTHON", help="a Python that has TensorFlow, for mount")
    add_output(parser, seconds=3)
    parser.set_defaults(measure=measure)


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    effort = effort_of(arguments)
    wanted = chosen_cases(arguments.cases, list(CASES))
    limits = {"megabytes": (1, 100_000), "entries": (1, _MOST_ENTRIES), "iterations": (1, 10_000)}
    for name, (least, most) in limits.items():
        value = getattr(arguments, name)
        if not least <= value <= most:
            raise UsageError(f"--{name} is {value}; {least} to {most} are possible")
    tensorflow = arguments.tensorflow
    if tensorflow is not None and shutil.which(tensorflow) is None:
        raise UsageError(f"--tensorflow {tensorflow} is not a Python that has TensorFlow")
    setting = Setting(
        launcher, arguments.megabytes, checked_rate(arguments.rate), effort.seconds, effort.repeats, arguments.entries,
        arguments.iterations, tensorflow, len(os.sched_getaffinity(0)),
    )  # fmt: skip
    rows = []
    for case in cases_here(wanted, bool(arguments.cases), _WITHOUT_HOSTS, launcher):
        launcher.say(f"store: {case}")
        rows += CASES[case](setting)
    return rows
