"""Several hosts on one machine: network namespaces joined by veth pairs and a bridge, both ends of each shaped by tbf.

Each host is one of its own: its network namespace gives its processes another host identity, so they share memory with
each other and reach everybody else over a link of the rate that was asked for. The bridge stands in a namespace too, so
nothing is ever added to, or looked for in, the machine's own network; removing the namespaces removes everything.

    with Hosts.create(2, "1gbit") as hosts:
        hosts.check()
        finished = run_ranks(hosts, [2, 2], ["build/release/bench/gyre-bench-allreduce", "--sizes", "4194304"])
        print(finished[0].stdout)

From a shell: `tools/hosts.py run --hosts 2 --ranks 2 --rate 100mbit -- COMMAND…`, or `up`, `exec`, `check`, `down`.
Linux, root, `ip`, `tc` and `ethtool`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

# One file per set of hosts, locked by the process that owns the set; who finds one unlocked clears that set away.
REGISTER = Path("/run/gyre-hosts")
NAME_PATTERN = re.compile(r"gyre-[0-9a-f]{8}")
RENDEZVOUS_PORT = 29600
PROBE_PORT = 29599
COMMAND_TIMEOUT_S = 30.0
MOST_HOSTS = 200
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
# What the token bucket holds after a pause: as little as lets the kernel's timers keep a busy machine at the rate.
BURST_SECONDS = 0.001
LEAST_BURST_BYTES = 16 * 1024
# How long a packet may wait for tokens before it is dropped. TCP fills this queue, so this is the latency under load.
QUEUE_MS = 20
# Packets as in a data centre. With the 1500 bytes of an office 4.4 % of the rate are headers, and acknowledgements of a
# stream the other way 2 % more; and the machine that plays all hosts handles six times as many packets.
DEFAULT_MTU = 9000
# Of the bits of a full packet, those that a TCP stream can use: 8948 of 9014 bytes, Ethernet's header counted by tbf.
ETHERNET_BYTES = 14
TCP_IP_BYTES = 52
# As Linux ships it, whatever this machine prefers: with bbr some messages take twice as long as with any other.
CONGESTION_CONTROL = "cubic"


class HostsError(Exception):
    """Hosts could not be made, are broken, or a rank on them failed; the message says what and where."""


def bits_per_second(rate: str) -> float:
    """ "100mbit" as a number. HostsError for what is no rate."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", rate)
    if not match or float(match[1]) == 0:
        raise HostsError(f"'{rate}' is no rate; write it like 100mbit or 1gbit")
    return float(match[1]) * UNITS[match[2]]


def shape_of(rate: str) -> list[str]:
    """What tc makes of a link of that rate."""
    burst = max(LEAST_BURST_BYTES, round(bits_per_second(rate) / 8 * BURST_SECONDS))
    return ["tbf", "rate", rate, "burst", str(burst), "latency", f"{QUEUE_MS}ms"]


def run_tool(*command: str, given: str | None = None) -> str:
    """Output of a short command; HostsError with its words when it fails."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise HostsError(f"{command[0]} is not installed (./dev setup installs iproute2 and ethtool)") from error
    if done.returncode != 0:
        hint = "" if os.geteuid() == 0 else " (network namespaces need root)"
        raise HostsError(f"{' '.join(command)} ended with {done.returncode}{hint}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class LinkReport:
    """What Hosts.check measured from one host to another."""

    source: int
    target: int
    round_trip_us: float
    bytes_per_second: float
    share: float
    """Of what a TCP stream can get out of the rate."""


class Hosts:
    """A set of hosts. Use as a context manager; the machine is as before when it ends, also after a failure.

    Not thread-safe. Made by create(); a set that outlives its process (keep) is found again by open().
    """

    def __init__(self, name: str, count: int, rate: str, mtu: int, links: int, register: IO[str] | None) -> None:
        self.name = name
        self.count = count
        self.rate = rate
        self.mtu = mtu
        self.links = links  # Of each host, each in a network of its own: eth0, eth1, …
        self._register = register
        self._started: list[subprocess.Popen[bytes]] = []

    @staticmethod
    def create(count: int, rate: str = "1gbit", *, mtu: int = DEFAULT_MTU, links: int = 1, keep: bool = False) -> Hosts:
        """Makes `count` hosts whose links carry `rate` in each direction. With `keep` they stay until down()."""
        if not 1 <= count <= MOST_HOSTS:
            raise HostsError(f"{count} hosts were asked for; between 1 and {MOST_HOSTS} can be made")
        bits_per_second(rate)
        REGISTER.mkdir(parents=True, exist_ok=True)
        clear_abandoned()
        name = f"gyre-{secrets.token_hex(4)}"
        draft = REGISTER / f"draft-{name}"
        register = draft.open("x", encoding="utf-8")
        fcntl.flock(register, fcntl.LOCK_EX)
        json.dump({"count": count, "rate": rate, "mtu": mtu, "links": links, "keep": keep}, register)
        register.flush()
        draft.rename(REGISTER / name)  # Locked and whole before anybody can find it.
        hosts = Hosts(name, count, rate, mtu, links, register)
        try:
            hosts._build()
        except BaseException:
            hosts.down()
            raise
        return hosts

    @staticmethod
    def open(name: str) -> Hosts:
        """The kept set of that name. HostsError when there is none."""
        if not NAME_PATTERN.fullmatch(name) or not (REGISTER / name).exists():
            raise HostsError(f"there are no hosts called '{name}'; there are: {', '.join(all_names()) or 'none'}")
        facts = json.loads((REGISTER / name).read_text(encoding="utf-8"))
        return Hosts(name, facts["count"], facts["rate"], facts["mtu"], facts["links"], None)

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def address(self, host: int, link: int = 0) -> str:
        """Where the others reach a host; the same in every set, since sets do not see each other."""
        return f"10.77.{link}.{host + 1}"

    def namespace(self, host: int) -> str:
        if not 0 <= host < self.count:
            raise HostsError(f"there is no host {host}; {self.name} has hosts 0 to {self.count - 1}")
        return f"{self.name}-host{host}"

    @property
    def switch(self) -> str:
        """The namespace of the bridge."""
        return f"{self.name}-switch"

    def start(
        self,
        host: int,
        command: Sequence[str],
        *,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts a command on a host. It ends with the hosts, and with the thread that calls this, at the latest."""
        process = subprocess.Popen(
            self.command_on(host, command),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **(environment or {})},
        )
        self._started.append(process)
        return process

    def command_on(self, host: int, command: Sequence[str]) -> list[str]:
        """`command` as a command line that runs on a host and dies with the thread that starts it."""
        inside = ["ip", "netns", "exec", self.namespace(host), *command]
        return ["setpriv", "--pdeathsig", "KILL", "--", *inside]

    def bytes_sent(self, host: int, link: int = 0) -> int:
        """What has left a host through a link so far: payload, headers and acknowledgements."""
        found = json.loads(run_tool("ip", "-n", self.namespace(host), "-s", "-j", "link", "show", f"eth{link}"))
        return int(found[0]["stats64"]["tx"]["bytes"])

    def stream_limit(self) -> float:
        """Bytes per second that TCP can carry over a link: the rate less the headers of full packets."""
        return bits_per_second(self.rate) / 8 * (self.mtu - TCP_IP_BYTES) / (self.mtu + ETHERNET_BYTES)

    def check(self, *, least_share: float = 0.0, seconds: float = 0.4) -> list[LinkReport]:
        """Measures every host's link, in and out: host i sends to host i + 1.

        HostsError when a link does not answer, is clearly faster than its rate (nothing shapes it then), or gives
        less than `least_share` of what TCP can get out of it. Benches ask for a share; tests must not.
        """
        return [self._measure(host, least_share, seconds) for host in range(self.count if self.count > 1 else 0)]

    def down(self) -> None:
        """Ends whatever still runs on the hosts and removes them. Safe to repeat."""
        # First what may not have entered its host yet.
        for started in self._started:
            started.kill()
            started.wait()
        self._started.clear()
        for namespace in existing_namespaces():
            if namespace.startswith(f"{self.name}-"):
                for process in run_tool("ip", "netns", "pids", namespace).split():
                    with_patience_kill(int(process))
                run_tool("ip", "netns", "delete", namespace)
        (REGISTER / self.name).unlink(missing_ok=True)
        if self._register:
            self._register.close()
            self._register = None

    def _build(self) -> None:
        run_tool("ip", "netns", "add", self.switch)
        for link in range(self.links):
            bridge = f"bridge{link}"
            lines = f"link add {bridge} type bridge\nlink set {bridge} mtu {self.mtu}\nlink set {bridge} up\n"
            run_tool("ip", "-n", self.switch, "-batch", "-", given=lines)
        for host in range(self.count):
            namespace = self.namespace(host)
            run_tool("ip", "netns", "add", namespace)
            run_tool("ip", "-n", namespace, "link", "set", "lo", "up")
            for link in range(self.links):
                self._join(host, link)

    def _join(self, host: int, link: int) -> None:
        """Connects a host with the bridge of that number."""
        namespace, device, port = self.namespace(host), f"eth{link}", f"port{host}-{link}"
        lines = [
            f"link add {port} type veth peer name {device} netns {namespace}",
            f"link set {port} mtu {self.mtu} master bridge{link} up",
        ]
        run_tool("ip", "-n", self.switch, "-batch", "-", given="\n".join(lines) + "\n")
        address = self.address(host, link)
        subnet = f"{address.rpartition('.')[0]}.0/24"
        lines = [
            f"link set {device} mtu {self.mtu} up",
            f"address add {address}/24 dev {device}",
            f"route change {subnet} dev {device} src {address} congctl {CONGESTION_CONTROL}",
        ]
        run_tool("ip", "-n", namespace, "-batch", "-", given="\n".join(lines) + "\n")
        self._shape(namespace, device)
        self._shape(self.switch, port)

    def _shape(self, namespace: str, device: str) -> None:
        # tbf must see packets as a wire would carry them, not 64 KB at a time.
        inside = ("ip", "netns", "exec", namespace)
        run_tool(*inside, "ethtool", "-K", device, "gso", "off", "tso", "off", "gro", "off")
        run_tool("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", *shape_of(self.rate))

    def _measure(self, source: int, least_share: float, seconds: float) -> LinkReport:
        target = (source + 1) % self.count
        probe = [sys.executable, str(Path(__file__).with_name("link_probe.py"))]
        place = [self.address(target), str(PROBE_PORT)]
        count = round(self.stream_limit() * seconds)
        with self.start(target, [*probe, "serve", *place], stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None
                if server.stdout.readline().strip() != b"ready":
                    raise HostsError(f"host {target} of {self.name} cannot listen at {place[0]}")
                measured = json.loads(run_tool(*self.command_on(source, [*probe, "measure", *place, str(count)])))
            finally:
                server.kill()
        share = measured["bytes_per_second"] / self.stream_limit()
        report = LinkReport(source, target, measured["round_trip_us"], measured["bytes_per_second"], share)
        found = f"host {source} to host {target}: {share:.1%} of what {self.rate} can carry"
        if share > 1.1:
            raise HostsError(f"{found}; nothing shapes this link")
        if share < least_share:
            raise HostsError(f"{found}, less than {least_share:.0%}; is the machine busy with something else?")
        return report


def existing_namespaces() -> list[str]:
    return [line.split()[0] for line in run_tool("ip", "netns", "list").splitlines() if line.strip()]


def all_names() -> list[str]:
    found = REGISTER.iterdir() if REGISTER.exists() else []
    return sorted(path.name for path in found if NAME_PATTERN.fullmatch(path.name))


def with_patience_kill(process: int) -> None:
    """kill -9, and waits until it is gone: a namespace lives as long as somebody is in it."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
    until = time.monotonic() + COMMAND_TIMEOUT_S
    while is_running(process) and time.monotonic() < until:
        time.sleep(0.01)


def is_running(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def clear_abandoned() -> None:
    """Removes the sets whose process is gone, killed before it could do so itself."""
    for name in all_names():
        try:
            register = (REGISTER / name).open("r", encoding="utf-8")
        except FileNotFoundError:
            continue  # Its owner has just removed it.
        with register:
            try:
                fcntl.flock(register, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            facts = json.loads(register.read())
            if not facts["keep"]:
                Hosts(name, facts["count"], facts["rate"], facts["mtu"], facts["links"], None).down()


@dataclass(frozen=True)
class FinishedRank:
    """How a rank ended."""

    rank: int
    host: int
    returncode: int
    stdout: str
    stderr: str


def rank_environments(hosts: Hosts, host_of_rank: Sequence[int], key_file: Path) -> list[dict[str, str]]:
    """What `gyre run` would hand to each rank of a job over these hosts; see docs/guide/launchers.md."""
    environments = []
    for rank, host in enumerate(host_of_rank):
        local_ranks = [other for other, place in enumerate(host_of_rank) if place == host]
        environments.append(
            {
                "GYRE_RANK": str(rank),
                "GYRE_SIZE": str(len(host_of_rank)),
                "GYRE_LOCAL_RANK": str(local_ranks.index(rank)),
                "GYRE_LOCAL_SIZE": str(len(local_ranks)),
                "GYRE_RENDEZVOUS": f"tcp:{hosts.address(host_of_rank[0])}:{RENDEZVOUS_PORT}",
                "GYRE_KEY_FILE": str(key_file),
            }
        )
    return environments


def run_ranks(
    hosts: Hosts,
    ranks_per_host: Sequence[int],
    command: Sequence[str],
    *,
    host_of_rank: Sequence[int] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> list[FinishedRank]:
    """Runs `command` as every rank of one job and returns how each ended, by rank.

    Host h gets ranks_per_host[h] ranks, numbered host by host; `host_of_rank` says otherwise where given. Ranks inherit
    this process's environment, with `environment` on top. HostsError when they have not all ended within `timeout_s`;
    none is left running then.
    """
    if host_of_rank is None:
        host_of_rank = [host for host, count in enumerate(ranks_per_host) for _ in range(count)]
    with tempfile.TemporaryDirectory(prefix="gyre-ranks-") as name:
        folder = Path(name)
        key_file = folder / "key"
        key_file.touch(mode=0o600)
        key_file.write_bytes(secrets.token_bytes(32))
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank, place in enumerate(rank_environments(hosts, host_of_rank, key_file)):
                with (folder / f"{rank}.out").open("wb") as out, (folder / f"{rank}.err").open("wb") as err:
                    variables = {**(environment or {}), **place}
                    processes.append(
                        hosts.start(host_of_rank[rank], command, stdout=out, stderr=err, environment=variables)
                    )
            until = time.monotonic() + timeout_s
            for process in processes:
                process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            late = [rank for rank, process in enumerate(processes) if process.poll() is None]
            raise HostsError(f"ranks {late} had not ended after {timeout_s} s\n{texts_of(folder, late)}") from error
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [
            FinishedRank(
                rank, host, processes[rank].returncode, text_of(folder, rank, "out"), text_of(folder, rank, "err")
            )
            for rank, host in enumerate(host_of_rank)
        ]


def text_of(folder: Path, rank: int, stream: str) -> str:
    return (folder / f"{rank}.{stream}").read_text(encoding="utf-8", errors="replace")


def texts_of(folder: Path, ranks: Sequence[int]) -> str:
    return "\n".join(f"rank {rank} said:\n{text_of(folder, rank, 'err')[-2000:]}" for rank in ranks)


def print_reports(reports: Sequence[LinkReport]) -> None:
    for report in reports:
        print(
            f"host {report.source} to host {report.target}: {report.round_trip_us:.0f} us there and back, "
            f"{report.bytes_per_second / 1e6:.2f} MB/s, {report.share:.1%} of what TCP can get out of the rate",
            file=sys.stderr,
        )


def after_dashes(command: list[str]) -> list[str]:
    return command[1:] if command[:1] == ["--"] else command


def run_verb(arguments: argparse.Namespace) -> int:
    with Hosts.create(arguments.hosts, arguments.rate, mtu=arguments.mtu) as hosts:
        print_reports(hosts.check())
        finished = run_ranks(hosts, [arguments.ranks] * arguments.hosts, after_dashes(arguments.command))
    for rank in finished:
        sys.stdout.write(rank.stdout if rank.rank == 0 else "")
        for line in rank.stderr.splitlines():
            print(f"[{rank.rank}] {line}", file=sys.stderr)
    return max(rank.returncode if rank.returncode >= 0 else 128 - rank.returncode for rank in finished)


def parser() -> argparse.ArgumentParser:
    main_parser = argparse.ArgumentParser(prog="tools/hosts.py", description="Several hosts on one machine.")
    verbs = main_parser.add_subparsers(dest="verb", required=True)
    for verb, text in (
        ("run", "make hosts, run a job on them, remove them"),
        ("up", "make hosts that stay; prints their name"),
        ("exec", "run a command on one host"),
        ("check", "measure the links"),
        ("down", "remove hosts"),
        ("list", "the hosts there are"),
    ):
        one = verbs.add_parser(verb, help=text, description=text)
        if verb in ("run", "up"):
            one.add_argument("--hosts", type=int, default=2, help="how many (default: 2)")
            one.add_argument("--rate", default="1gbit", help="of each link, each way (default: 1gbit)")
            one.add_argument("--mtu", type=int, default=DEFAULT_MTU, help=f"bytes per packet (default: {DEFAULT_MTU})")
        if verb == "run":
            one.add_argument("--ranks", type=int, default=1, help="ranks on each host (default: 1)")
        if verb in ("exec", "check", "down"):
            one.add_argument("name", help="what `up` printed")
        if verb == "exec":
            one.add_argument("host", type=int, help="number of the host, from 0")
        if verb in ("run", "exec"):
            one.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    return main_parser


def main() -> int:
    arguments = parser().parse_args()
    try:
        if arguments.verb == "run":
            return run_verb(arguments)
        if arguments.verb == "up":
            print(Hosts.create(arguments.hosts, arguments.rate, mtu=arguments.mtu, keep=True).name)
        elif arguments.verb == "exec":
            hosts = Hosts.open(arguments.name)
            command = ["ip", "netns", "exec", hosts.namespace(arguments.host), *after_dashes(arguments.command)]
            return subprocess.run(command, check=False).returncode
        elif arguments.verb == "check":
            print_reports(Hosts.open(arguments.name).check())
        elif arguments.verb == "down":
            Hosts.open(arguments.name).down()
        else:
            print("\n".join(all_names()))
    except HostsError as error:
        print(f"hosts: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
