"""What `gyre bench stage` and `gyre bench store` share: data sets, a web server, simulated hosts, the daemons of a
store, and rows of rates.

A row: {"bench", "case", "what", "unit", "ours", "bound", "goal", "peers": {name: rate}}. More is better, but where
"unit" is "B/object". What Gyre should reach, if anything: "goal", a share of the bound; "goal_value", in the row's
unit; or "goal_over_peer", as often as a peer.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gyre.bench.errors import BenchError, UsageError
from gyre.bench.launch import PROGRAM_TIMEOUT_SECONDS, Launcher, Place, program
from gyre.bench.report import Row

if TYPE_CHECKING:
    from hosts import Hosts

_LAST_WORDS = 2000
FAST = "40gbit"  # Faster than this machine plays hosts.
# Of a packet on links of some Mbit/s, as the Internet has it. Three packets of a data centre would fill such a link's
# queue, and the connections would wait for lost packets most of the time.
INTERNET_PACKET_BYTES = 1500


def megabytes(value: float) -> int:
    return round(value * 1e6)


def run(command: Sequence[str]) -> str:
    """A program's output. BenchError has its last words."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PROGRAM_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{' '.join(command)} has not ended within {PROGRAM_TIMEOUT_SECONDS} s") from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout)[-_LAST_WORDS:].strip()
        raise BenchError(f"{' '.join(command)} ended with {done.returncode}:\n{words}")
    return done.stdout


def figures(command: Sequence[str]) -> dict[str, Any]:
    """What gyre-bench-store and the programs of gyre.bench.loaders print last."""
    printed: dict[str, Any] = json.loads(run(command).strip().splitlines()[-1])
    return printed


def together(launcher: Launcher, commands: Sequence[Sequence[str]]) -> tuple[float, list[str]]:
    """The seconds until the last of them has ended, which all start at once, and what each has printed."""
    logs = [launcher.file("output") for _ in commands]
    processes: list[subprocess.Popen[bytes]] = []
    began = time.perf_counter()
    try:
        for command, log in zip(commands, logs, strict=True):
            with log.open("wb") as output:
                processes.append(
                    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
                )
        codes = [process.wait(PROGRAM_TIMEOUT_SECONDS) for process in processes]
        seconds = time.perf_counter() - began
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{' '.join(commands[0])} has not ended within {PROGRAM_TIMEOUT_SECONDS} s") from error
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for command, log, code in zip(commands, logs, codes, strict=True):
        if code != 0:
            raise BenchError(f"{' '.join(command)} ended with {code}:\n{log.read_text()[-_LAST_WORDS:].strip()}")
    return seconds, [log.read_text() for log in logs]


def medians(turns: int, measured: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Of each, in turns, so that other load on the machine affects all of them."""
    found: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(turns):
        for name, measure in measured.items():
            found[name].append(measure())
    return {name: statistics.median(values) for name, values in found.items()}


def rate_row(
    bench: str, case: str, what: str, unit: str, ours: float, *, bound: float | None = None, goal: float | None = None,
    peers: Mapping[str, float | None] | None = None, **more: Any,
) -> Row:  # fmt: skip
    return {
        "bench": bench, "case": case, "what": what, "unit": unit, "ours": ours, "bound": bound, "goal": goal,
        "peers": dict(peers or {}), **more,
    }  # fmt: skip


# Data sets.


def random_files(folder: Path, count: int, size_bytes: int, prefix: str = "part") -> int:
    """What no compression makes smaller. Returns the bytes in all."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{prefix}-{number:06d}.bin").write_bytes(os.urandom(size_bytes))
    return count * size_bytes


@dataclass(frozen=True)
class Volumes:
    """The same CosmoFlow volumes compressed and not, each under several names: servers and readers do not notice."""

    compressed: Path
    plain: Path
    stored_bytes: int
    plain_bytes: int

    @property
    def ratio(self) -> float:
        return self.plain_bytes / self.stored_bytes

    def some(self) -> list[str]:
        """The files behind the names."""
        return sorted({str(path.resolve()) for path in self.compressed.iterdir()})


def write_volumes(folder: Path, *, different: int, size: int, names: int = 0, stored_bytes: int = 0) -> Volumes:
    """`different` volumes under so many names, or under as many as make about so many bytes compressed."""
    from gyre.datasets.cosmo import write_volumes as write  # noqa: PLC0415 - only some cases need it

    kinds = {"compressed": (".tfrecord.gz", False), "plain": (".tfrecord", True)}
    total = {}
    for kind, (suffix, plain) in kinds.items():
        own = folder / f"files-{kind}"
        write(own, {"train": different}, size, seed=0, plain=plain, processes=1)
        files = sorted((own / "train").iterdir())
        sizes = [file.stat().st_size for file in files]
        names = names or max(different, round(stored_bytes / sum(sizes) * different))
        (folder / kind).mkdir()
        for number in range(names):
            (folder / kind / f"volume_{number:06d}{suffix}").symlink_to(files[number % different])
        total[kind] = sum(sizes[number % different] for number in range(names))
    return Volumes(folder / "compressed", folder / "plain", total["compressed"], total["plain"])


def check_arrived(folder: Path, files: int, size_bytes: int) -> None:
    """gyre stage and rclone compare checksums themselves: here, that nothing was left out."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and ".gyre-stage" not in path.parts]
    if (len(sizes), sum(sizes)) != (files, size_bytes):
        raise BenchError(f"{folder} has {len(sizes)} files, {sum(sizes)} bytes; {files} and {size_bytes} were expected")


_BLOCK_BYTES = 4 << 20


def disk_rate(folder: Path, files: int, size_bytes: int, threads: int) -> float:
    """Bytes per second at which so many threads write files of that size until all of it is on the disk."""
    folder.mkdir()
    block = os.urandom(min(_BLOCK_BYTES, size_bytes))

    def write(number: int) -> None:
        with (folder / str(number)).open("wb", buffering=0) as file:
            for begin in range(0, size_bytes, len(block)):
                file.write(block[: size_bytes - begin])

    os.sync()
    try:
        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(write, range(files)))
        os.sync()
        return files * size_bytes / (time.perf_counter() - began)
    finally:
        shutil.rmtree(folder)


# Hosts and servers.


class Network:
    """Hosts that are simulated on this machine (tools/hosts.py), or, without them, its loopback."""

    def __init__(self, hosts: Hosts | None) -> None:
        self.hosts = hosts

    @staticmethod
    def of_hosts(launcher: Launcher, count: int, rate: str, packet_bytes: int | None = None) -> Network:
        """New ones, which nobody has shaped otherwise. `packet_bytes`: see Place."""
        launcher.end_hosts()
        return Network(launcher.hosts(Place(count, count, rate, packet_bytes), check=rate != FAST))

    @staticmethod
    def loopback() -> Network:
        return Network(None)

    def on(self, host: int, command: Sequence[str]) -> list[str]:
        return self.hosts.command_on(host, command) if self.hosts else list(command)

    def address(self, host: int) -> str:
        return self.hosts.address(host) if self.hosts else "127.0.0.1"

    def shape(self, host: int, bytes_per_second: float) -> None:
        """Gives a host's link another rate."""
        from host_links import reshape  # noqa: PLC0415 - see Launcher.hosts

        assert self.hosts is not None
        reshape(self.hosts, host, f"{max(1, round(bytes_per_second * 8 / 1000))}kbit")

    def stream_limit(self) -> float:
        """Bytes per second of a TCP stream over a link that was not shaped otherwise."""
        assert self.hosts is not None
        return self.hosts.stream_limit()

    def stream_share(self) -> float:
        """Of a link's rate: what TCP can carry."""
        from hosts import bits_per_second  # noqa: PLC0415 - see Launcher.hosts

        assert self.hosts is not None
        return self.stream_limit() / (bits_per_second(self.hosts.rate) / 8)


def why_no_hosts() -> str | None:
    """Why no hosts can be simulated here; None if they can."""
    if os.geteuid() != 0:
        return "hosts are simulated on this machine by root only"
    if shutil.which("ip") is None or shutil.which("ethtool") is None:
        return "hosts are simulated on this machine with ip and ethtool, which are not installed"
    return None


@contextmanager
def web_server(launcher: Launcher, network: Network, host: int, root: Path) -> Iterator[str]:
    """nginx on a host, for the files of a folder. Gives the URL of its index page."""
    if shutil.which("nginx") is None:
        raise UsageError("nginx is not installed (apt install nginx-light)")
    try:
        from nginx import nginx  # noqa: PLC0415 - a tool of the repository, not part of the package
    except ModuleNotFoundError:
        raise UsageError("nginx is started by a checkout's tools/nginx.py; run `./dev bench` there") from None
    folder = launcher.file("nginx")
    folder.mkdir()
    root.chmod(0o755)
    settings = "sendfile on; tcp_nopush on;"
    with nginx(root, folder, settings, address=network.address(host), prefix=network.on(host, [])) as url:
        yield url


# A store.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@dataclass
class Store:
    """Daemons of a store, one on each of the first `count` hosts, each with a folder of its own. Use as a context
    manager; its end ends them."""

    launcher: Launcher
    network: Network
    count: int
    sources: Sequence[str]
    words: Sequence[str] = ()
    prefix: Sequence[str] = ()  # First words of each command line.
    key_folder: Path | None = None  # Where the key is, if not beside the nodes' folders.
    place: Path | None = None  # Where the nodes' folders are, if not in a new folder.
    daemons: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> Store:
        self.folder = self.launcher.file("store")
        self.folder.mkdir()
        key = (self.key_folder or self.folder) / "key"
        key.touch(mode=0o600)
        key.write_text(secrets.token_hex(32) + "\n")
        ports = [7000 if self.network.hosts else free_port() for _ in range(self.count)]
        nodes = ",".join(f"{node}=tcp:{self.network.address(node)}:{port}" for node, port in enumerate(ports))
        try:
            for node in range(self.count):
                command = [
                    *self.prefix, str(program("gyre")), "store", "serve", "--store-dir", str(self.store_dir(node)),
                    "--node", str(node), "--nodes", nodes, "--key-file", str(key), *self.words, *self.sources,
                ]  # fmt: skip
                with (self.folder / f"log{node}").open("w") as log:
                    self.daemons.append(
                        subprocess.Popen(
                            self.network.on(node, command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=log, text=True,
                        )
                    )  # fmt: skip
            for node, daemon in enumerate(self.daemons):
                assert daemon.stdout is not None
                if not daemon.stdout.readline().startswith(f"node {node} of "):
                    words = (self.folder / f"log{node}").read_text()[-_LAST_WORDS:].strip()
                    raise BenchError(f"the daemon of node {node} does not serve:\n{words}")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for daemon in self.daemons:
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
            if daemon.stdout is not None:
                daemon.stdout.close()
        self.daemons.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def store_dir(self, node: int) -> Path:
        return (self.place or self.folder) / f"node{node}"

    def url(self, node: int) -> str:
        return f"store://{self.store_dir(node)}/store"

    def status(self, node: int, prefix: Sequence[str] = ()) -> dict[str, Any]:
        """`prefix`: the first words of the command line, where the daemon's folder is seen only by some."""
        command = [*prefix, str(program("gyre")), "store", "status", "--store-dir", str(self.store_dir(node))]
        found: dict[str, Any] = json.loads(run(self.network.on(node, command)))
        return found

    def wait_until_fetched(self) -> None:
        deadline = time.monotonic() + PROGRAM_TIMEOUT_SECONDS
        for node in range(self.count):
            while self.status(node)["fetching_ahead"]:
                if time.monotonic() > deadline:
                    raise BenchError("the daemons have not fetched the set")
                time.sleep(0.1)


def reader(place: str, *words: str) -> list[str]:
    return [str(program("gyre-bench-store")), "read", place, *words]


@contextmanager
def bare_tls(network: Network, host: int, message_bytes: int) -> Iterator[tuple[str, int]]:
    """The sending end of a bare TLS connection; gives its address and port."""
    address, port = network.address(host), 7100 if network.hosts else free_port()
    command = [str(program("gyre-bench-store")), "tls-send", address, str(port), "--message-bytes", str(message_bytes)]
    with subprocess.Popen(network.on(host, command), stdout=subprocess.PIPE, text=True) as sender:
        try:
            assert sender.stdout is not None
            if sender.stdout.readline().strip() != "ready":
                raise BenchError(f"{' '.join(command)} does not listen")
            yield address, port
        finally:
            sender.kill()


def tls_rate(network: Network, sender: int, receiver: int, message_bytes: int, seconds: float) -> float:
    """Bytes per second that one process can send to another through TLS, doing nothing else."""
    with bare_tls(network, sender, message_bytes) as (address, port):
        words = ["--message-bytes", str(message_bytes), "--seconds", str(max(0.1, seconds))]
        command = [str(program("gyre-bench-store")), "tls-receive", address, str(port), *words]
        return float(figures(network.on(receiver, command))["bytes_per_second"])
