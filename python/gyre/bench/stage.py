"""`gyre bench stage`: how fast a data set is staged, compared with the link, with libdeflate alone, and with rclone.

The source is nginx. Hosts are network namespaces of this machine, joined by links of a rate (as root, from a checkout:
./dev bench stage). The cases:

  link      files that no compression makes smaller, over one link of --rate; the bound is what TCP can carry over it,
            or the rate at which this machine writes such files to its disk
  gzip      CosmoFlow volumes, decompressed while they arrive over that link; the bound is the least of the link,
            libdeflate alone on all cores, and the disk
  loopback  the same without hosts and links, compared with `rclone copy` and then gunzip on all cores
  ratio     four nodes stage the set plain and compressed, over links that are slower than they inflate, in the
            proportion of article 004, and as fast: the gain, compared with what the rates predict (claim C13)
  accounts  1 to 12 nodes with links of 5.5 Mbit/s stage from one and two servers with 50 Mbit/s: where it bends (C15)
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gyre.bench.data_places import (
    FAST,
    INTERNET_PACKET_BYTES,
    Network,
    Volumes,
    check_arrived,
    disk_rate,
    figures,
    medians,
    megabytes,
    random_files,
    rate_row,
    together,
    web_server,
    why_no_hosts,
    write_volumes,
)
from gyre.bench.errors import UsageError
from gyre.bench.launch import Launcher, program
from gyre.bench.options import add_output, effort_of, integers
from gyre.bench.report import Row

_GOOD_SHARE_OF_LINK = 0.95
_GOOD_SHARE_OF_INFLATING = 0.9
_GOOD_OVER_RCLONE = 2.0
_FILES = 16
_NODES = 4
_ARTICLE_GAIN = 2.7
_NODE_RATE = 5.5e6 / 8
_ACCOUNT_RATE = 50e6 / 8
_FILES_PER_NODE = 16
_MOST_NODES = 64
_MOST_MEGABYTES = 100_000


@dataclass(frozen=True)
class Setting:
    launcher: Launcher
    megabytes: int  # Of a set, as it is stored.
    rate: str
    seconds: float
    repeats: int
    volumes: int  # Different ones.
    volume_size: int
    nodes: Sequence[int]  # Of `accounts`.
    cores: int

    def folder(self, name: str) -> Path:
        made = self.launcher.file(name)
        made.mkdir()
        return made

    def make_volumes(self) -> Volumes:
        """Of about so many megabytes."""
        stored_bytes = megabytes(self.megabytes)
        folder = self.folder("volumes")
        return write_volumes(folder, different=self.volumes, size=self.volume_size, stored_bytes=stored_bytes)

    def inflating(self, volumes: Volumes) -> dict[str, float]:
        """Of libdeflate alone."""
        words = ["--threads", str(self.cores), "--seconds", str(max(0.1, self.seconds))]
        found: dict[str, float] = figures([str(program("gyre-bench-store")), "inflate", *volumes.some(), *words])
        return found

    def writing(self, files: int, size_bytes: int) -> float:
        """Bytes per second that the disk takes."""
        return disk_rate(self.launcher.file("disk"), files, size_bytes, self.cores)

    def limits_of_inflating(self, volumes: Volumes) -> dict[str, Callable[[], float]]:
        """Stored bytes per second that can be decompressed, and that can be written decompressed, on this machine."""
        files = len(list(volumes.plain.iterdir()))
        return {
            "libdeflate": lambda: self.inflating(volumes)["stored_bytes_per_second"],
            "disk": lambda: self.writing(files, volumes.plain_bytes // files) / volumes.ratio,
        }


def stage_command(sources: Sequence[str], to: Path, *words: str) -> list[str]:
    return [str(program("gyre")), "stage", *sources, "--to", str(to), "--quiet", *words]


def rclone_command(url: str, to: Path) -> list[str]:
    """With as many transfers as gyre stage has."""
    quiet = ["--config", "/dev/null", "--log-level", "ERROR"]
    return ["rclone", "copy", ":http:", str(to), "--http-url", url, "--transfers", "16", "--checkers", "16", *quiet]


def _rclone_is_here(launcher: Launcher) -> bool:
    if shutil.which("rclone") is None:
        launcher.note("rclone is not measured: it is not installed (apt install rclone)")
        return False
    return True


def _timed(
    setting: Setting, commands: Callable[[Path], Sequence[Sequence[str]]], files: int, size_bytes: int,
) -> float:  # fmt: skip
    """The seconds of these commands, one after the other, which bring the set to a new folder."""
    to = setting.folder("there")
    os.sync()  # Or what was written before, the set itself among it, would be brought to the disk meanwhile.
    try:
        seconds = sum(together(setting.launcher, [command])[0] for command in commands(to))
        check_arrived(to, files, size_bytes)
    finally:
        shutil.rmtree(to)
    return seconds


def _rate(setting: Setting, way: Callable[[Path], Sequence[Sequence[str]]], files: int, size_bytes: int) -> float:
    return size_bytes / _timed(setting, way, files, size_bytes)


def link(setting: Setting) -> list[Row]:
    folder = setting.folder("random")
    total = random_files(folder, _FILES, max(1, megabytes(setting.megabytes) // _FILES))
    network = Network.of_hosts(setting.launcher, 2, setting.rate)
    with web_server(setting.launcher, network, 1, folder) as url:
        ways = {"ours": lambda to: [network.on(0, stage_command([url], to))]}
        if _rclone_is_here(setting.launcher):
            ways["rclone"] = lambda to: [network.on(0, rclone_command(url, to))]
        measured: dict[str, Callable[[], float]] = {
            name: partial(_rate, setting, way, _FILES, total) for name, way in ways.items()
        }
        measured["disk"] = lambda: setting.writing(_FILES, total // _FILES)
        rates = medians(setting.repeats, measured)
    what = f"{total / 1e6:.0f} MB over {setting.rate}"
    peers = {"rclone": rates.get("rclone")}
    bounds = {"link": network.stream_limit(), "disk": rates["disk"]}
    goal = _GOOD_SHARE_OF_LINK
    row = rate_row("stage", "link", what, "B/s", rates["ours"], bound=min(bounds.values()), goal=goal, peers=peers)
    return [{**row, "bounds": bounds}]


def _stage_inflated(setting: Setting, network: Network, url: str, volumes: Volumes) -> float:
    """Stored bytes per second."""

    def commands(to: Path) -> list[list[str]]:
        return [network.on(0, stage_command([url], to, "--decompress-by-suffix"))]

    files = len(list(volumes.compressed.iterdir()))
    return volumes.stored_bytes / _timed(setting, commands, files, volumes.plain_bytes)


def gzip(setting: Setting) -> list[Row]:
    volumes = setting.make_volumes()
    network = Network.of_hosts(setting.launcher, 2, setting.rate)
    with web_server(setting.launcher, network, 1, volumes.compressed.parent) as url:
        rates = medians(
            setting.repeats,
            {
                "ours": lambda: _stage_inflated(setting, network, f"{url}compressed/", volumes),
                **setting.limits_of_inflating(volumes),
            },
        )
    bounds = {"link": network.stream_limit(), "libdeflate": rates["libdeflate"], "disk": rates["disk"]}
    what = f"{volumes.stored_bytes / 1e6:.0f} MB of gzip over {setting.rate}, inflated {volumes.ratio:.1f} times"
    bound, goal = min(bounds.values()), _GOOD_SHARE_OF_INFLATING
    row = rate_row("stage", "gzip", what, "B/s", rates["ours"], bound=bound, goal=goal, ratio=volumes.ratio)
    return [{**row, "bounds": bounds}]


def loopback(setting: Setting) -> list[Row]:
    volumes = setting.make_volumes()
    network = Network.loopback()
    files = len(list(volumes.compressed.iterdir()))
    with web_server(setting.launcher, network, 0, volumes.compressed.parent) as index:
        url = f"{index}compressed/"

        def rclone(to: Path) -> list[list[str]]:
            gunzip = f"find '{to}' -name '*.gz' -print0 | xargs -0 -n 1 -P {setting.cores} gunzip"
            return [rclone_command(url, to), ["sh", "-c", gunzip]]

        measured: dict[str, Callable[[], float]] = {
            "ours": lambda: _stage_inflated(setting, network, url, volumes),
            **setting.limits_of_inflating(volumes),
        }
        if _rclone_is_here(setting.launcher):
            measured["rclone"] = lambda: volumes.stored_bytes / _timed(setting, rclone, files, volumes.plain_bytes)
        rates = medians(setting.repeats, measured)
    what = f"{volumes.stored_bytes / 1e6:.0f} MB of gzip, loopback, inflated {volumes.ratio:.1f} times"
    peers = {"rclone + gunzip": rates.get("rclone")}
    bounds = {"libdeflate": rates["libdeflate"], "disk": rates["disk"]}
    row = rate_row("stage", "loopback", what, "B/s", rates["ours"], bound=min(bounds.values()), peers=peers)
    return [{**row, "bounds": bounds, "goal_over_peer": _GOOD_OVER_RCLONE}]


def _all_nodes(setting: Setting, network: Network, url: str, nodes: int, *words: str) -> float:
    """The seconds until each of the nodes has its part."""
    to = setting.folder("there")
    try:
        commands = [
            network.on(node, stage_command([url], to / str(node), "--shard", f"{node}/{nodes}", *words))
            for node in range(nodes)
        ]
        return together(setting.launcher, commands)[0]
    finally:
        shutil.rmtree(to)


def ratio(setting: Setting) -> list[Row]:
    volumes = setting.make_volumes()
    network = Network.of_hosts(setting.launcher, _NODES + 1, FAST)
    rows = []
    with web_server(setting.launcher, network, _NODES, volumes.compressed.parent) as url:

        def staging(kind: str) -> float:
            words = ["--decompress-by-suffix"] if kind == "compressed" else []
            return _all_nodes(setting, network, f"{url}{kind}/", _NODES, *words)

        unshaped = medians(setting.repeats, {"compressed": lambda: staging("compressed")})
        inflated_per_node = volumes.plain_bytes / unshaped["compressed"] / _NODES
        for share in (1 / (1.5 * volumes.ratio), 1 / _ARTICLE_GAIN, 1.0):
            setting.launcher.say(f"links of {share:.2f} of the rate at which a node inflates")
            for node in range(_NODES):
                network.shape(node, inflated_per_node * share)
            turns = {"plain": lambda: staging("plain"), "compressed": lambda: staging("compressed")}
            seconds = medians(setting.repeats, turns)
            rows.append(
                rate_row(
                    "stage", "ratio", f"{_NODES} nodes, links of {share:.2f} of what each inflates: plain/gzip", "x",
                    seconds["plain"] / seconds["compressed"], bound=min(volumes.ratio, 1 / share),
                    plain_s=seconds["plain"], compressed_s=seconds["compressed"],
                    link_bytes_per_second=inflated_per_node * share, inflated_bytes_per_second=inflated_per_node,
                )
            )  # fmt: skip
    return rows


def _accounts(setting: Setting, network: Network, nodes: int, accounts: int, urls: Sequence[str], root: Path) -> Row:
    predicted = min(nodes * _NODE_RATE, accounts * _ACCOUNT_RATE) * network.stream_share()
    files = nodes * _FILES_PER_NODE
    size = max(1, round(predicted * max(0.5, setting.seconds) / files))
    for account in range(accounts):
        shutil.rmtree(root / str(account), ignore_errors=True)
        random_files(root / str(account) / "set", files // accounts, size, prefix=f"account{account}")
    to = setting.folder("there")
    try:
        commands = []
        for node in range(nodes):
            sources = [f"{url}set/" for url in urls[:accounts]]
            commands.append(network.on(node, stage_command(sources, to / str(node), "--shard", f"{node}/{nodes}")))
        seconds = together(setting.launcher, commands)[0]
        check_arrived(to, files // accounts * accounts, files // accounts * accounts * size)
    finally:
        shutil.rmtree(to)
    what = f"{nodes} node{'s' if nodes > 1 else ''} of 5.5 Mbit/s, {accounts} of 50 Mbit/s"
    rate = files // accounts * accounts * size / seconds
    return rate_row("stage", "accounts", what, "B/s", rate, bound=predicted, nodes=nodes, accounts=accounts)


def accounts(setting: Setting) -> list[Row]:
    most = max(setting.nodes)
    rate = f"{_NODE_RATE * 8 / 1000:.0f}kbit"
    network = Network.of_hosts(setting.launcher, most + 2, rate, INTERNET_PACKET_BYTES)
    root = setting.folder("accounts")
    rows = []
    with ExitStack() as servers:
        urls = []
        for account in range(2):
            network.shape(most + account, _ACCOUNT_RATE)
            (root / str(account)).mkdir()
            urls.append(
                servers.enter_context(web_server(setting.launcher, network, most + account, root / str(account)))
            )
        for count in (1, 2):
            for nodes in setting.nodes:
                setting.launcher.say(f"{nodes} nodes, {count} accounts")
                rows.append(_accounts(setting, network, nodes, count, urls, root))
    return rows


CASES: dict[str, Callable[[Setting], list[Row]]] = {
    "link": link,
    "gzip": gzip,
    "loopback": loopback,
    "ratio": ratio,
    "accounts": accounts,
}
_WITHOUT_HOSTS = ("loopback",)


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "stage",
        help="a data set brought into a folder, compared with the link and with rclone",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: ./dev bench stage link gzip --megabytes 256 --rate 1gbit",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--megabytes", type=int, default=256, help="of each set, as it is stored (default: 256)")
    parser.add_argument("--rate", default="1gbit", help="of the links of link and gzip (default: 1gbit)")
    parser.add_argument("--volumes", type=int, default=8, help="different volumes in a set of gzip (default: 8)")
    parser.add_argument("--volume-size", type=int, default=128, help="voxels per side (default: 128)")
    parser.add_argument("--nodes", default="1,2,4,8,9,10,12", help="of accounts (default: 1,2,4,8,9,10,12)")
    add_output(parser, seconds=4)
    parser.set_defaults(measure=measure)


def checked_rate(rate: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)?(kbit|mbit|gbit)", rate) or float(rate[:-4]) == 0:
        raise UsageError(f"--rate is '{rate}'; a rate such as 100mbit or 1gbit is needed")
    return rate


def chosen_cases(names: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in names:
        if name not in known:
            raise UsageError(f"there is no case '{name}'; there are: {', '.join(known)}")
    return list(names) or list(known)


def cases_here(wanted: Sequence[str], named: bool, without_hosts: Sequence[str], launcher: Launcher) -> list[str]:
    """Without those that this machine cannot do, which a note says; UsageError where they were asked for by name."""
    missing = why_no_hosts()
    possible = [case for case in wanted if missing is None or case in without_hosts]
    left_out = [case for case in wanted if case not in possible]
    if left_out and (named or not possible):
        raise UsageError(f"{', '.join(left_out)}: {missing}")
    if left_out:
        launcher.note(f"{', '.join(left_out)} are not measured: {missing}")
    return possible


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    effort = effort_of(arguments)
    wanted = chosen_cases(arguments.cases, list(CASES))
    if not 1 <= arguments.megabytes <= _MOST_MEGABYTES:
        raise UsageError(f"--megabytes is {arguments.megabytes}; 1 to {_MOST_MEGABYTES} are possible")
    if not 1 <= arguments.volumes <= 1000:
        raise UsageError(f"--volumes is {arguments.volumes}; 1 to 1000 are possible")
    if arguments.volume_size not in (16, 32, 64, 128):
        raise UsageError(f"--volume-size is {arguments.volume_size}; 16, 32, 64, 128 are possible")
    nodes = integers(arguments.nodes, "--nodes", 1, _MOST_NODES)
    setting = Setting(
        launcher, arguments.megabytes, checked_rate(arguments.rate), effort.seconds, effort.repeats, arguments.volumes,
        arguments.volume_size, nodes, len(os.sched_getaffinity(0)),
    )  # fmt: skip
    rows = []
    for case in cases_here(wanted, bool(arguments.cases), _WITHOUT_HOSTS, launcher):
        launcher.say(f"stage: {case}")
        rows += CASES[case](setting)
    return rows
