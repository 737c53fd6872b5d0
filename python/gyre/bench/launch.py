"""Starts the measured programs, and collects the figures that their rank 0 writes.

Everything runs under `gyre run`, the peers too: however the benchmark ends, none of their processes is left behind.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gyre.bench.errors import BenchError, UsageError

if TYPE_CHECKING:
    from hosts import Hosts

PROGRAM_TIMEOUT_SECONDS = 900
# If a link, measured before the run, reaches less than this share of its rate, a note says so.
_LEAST_SHARE = 0.95
_GRACE_SECONDS = 1
_LAST_WORDS = 2000

Figures = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the ranks of one run are: the same number on every host. Hosts are network namespaces of this machine,
    so its cores are shared by all ranks."""

    ranks: int
    hosts: int = 1
    rate: str = "1gbit"  # Of each host's link in each direction.
    packet_bytes: int | None = None  # If not those of a data centre, which the hosts have by themselves.

    @property
    def threads(self) -> int:
        """Threads of each rank's own computation: its share of the cores."""
        return max(1, (os.cpu_count() or 1) // self.ranks)

    @property
    def words(self) -> str:
        """ "4 ranks", "4 ranks on 2 hosts at 1gbit" """
        ranks = f"{self.ranks} ranks" if self.ranks != 1 else "1 rank"
        return ranks if self.hosts == 1 else f"{ranks} on {self.hosts} hosts at {self.rate}"

    @property
    def effort(self) -> list[str]:
        """Arguments of a rank's program: how much memory buffers rotate over and the least number of measurements
        per figure. Over links both are small: no cache makes a wire faster, and a collective takes long."""
        return ["--rotation-bytes", "1", "--fewest-rounds", "3"] if self.hosts > 1 else []

    def columns(self) -> dict[str, Any]:
        """Of a row."""
        return {"ranks": self.ranks, "hosts": self.hosts, **({"rate": self.rate} if self.hosts > 1 else {})}

    def bound_us(self, size_bytes: int, bound_bytes_per_second: float) -> float:
        """The lower bound of an allreduce's time. On one host: at the measured rate at which threads, without
        waiting for each other, read every rank's buffer once and write the sum into each of them. On several hosts:
        what must leave each host, 2(H-1)/H of the buffer, at the link's full rate, ignoring headers."""
        if self.hosts == 1:
            return size_bytes / bound_bytes_per_second * 1e6
        from hosts import bits_per_second  # noqa: PLC0415 - see Launcher.hosts

        return self.sent_bound_bytes(size_bytes) * 8 / bits_per_second(self.rate) * 1e6

    def sent_bound_bytes(self, size_bytes: int) -> float:
        """The bytes that must leave each host."""
        return 2 * (self.hosts - 1) / self.hosts * size_bytes


def program(name: str) -> Path:
    """One of Gyre's programs: next to the one that was called, next to this Python, or in PATH. UsageError if not
    found."""
    candidates = [Path(sys.executable).parent / name]
    called = os.environ.get("GYRE_PROGRAM")
    if called:
        candidates.insert(0, Path(called).resolve().parent / name)
    found = shutil.which(name)
    if found:
        candidates.append(Path(found).resolve())
    gyre = shutil.which("gyre")
    if gyre:
        candidates.append(Path(gyre).resolve().parent / name)
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise UsageError(
        f"there is no {name} beside {sys.executable} nor in PATH; install the package gyre-train, or run `./dev build` "
        "in a checkout and call `./dev bench`"
    )


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs a rank written in Python."""
    return [sys.executable, "-P", "-m", f"gyre.bench.ranks.{name}", *arguments]


def why_no_openmpi() -> str | None:
    """What is missing for Open MPI; None if it can be measured."""
    if shutil.which("mpirun") is None:
        return "there is no mpirun in PATH"
    if importlib.util.find_spec("mpi4py") is None:
        return f"{sys.executable} has no mpi4py"
    return None


class Launcher:
    """Runs programs one after the other, with a folder for their files that is removed afterwards."""

    def __init__(self, scratch: Path, *, verbose: bool) -> None:
        self.scratch = scratch
        self._verbose = verbose
        self._runs = 0
        self._hosts: Hosts | None = None
        self._round_trip_us = 0.0
        self.notes: list[str] = []  # Notes for the reader of the figures.

    def note(self, what: str) -> None:
        if what not in self.notes:
            self.notes.append(what)

    def say(self, what: str) -> None:
        """Progress messages."""
        if self._verbose:
            print(f"gyre bench: {what}", file=sys.stderr, flush=True)

    def file(self, name: str) -> Path:
        """A path that no run has used before."""
        self._runs += 1
        return self.scratch / f"{self._runs}-{name}"

    def ranks(
        self,
        place: Place,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        host_of_rank: Sequence[int] | None = None,
    ) -> Figures:
        """Runs `command` on every rank of `place` and returns what the ranks report: one of them does. `host_of_rank`:
        for several hosts, where the ranks are not spread evenly. BenchError if it fails."""
        result = self.file("result.json")
        full = [*command, *place.effort, "--result", str(result)]
        threads = {"OMP_NUM_THREADS": str(place.threads)}
        if place.hosts > 1:
            return self._run_on_hosts(place, full, {**threads, **(environment or {})}, result, host_of_rank)
        run = [str(program("gyre")), "run", "-n", str(place.ranks), "--grace-seconds", str(_GRACE_SECONDS), "--"]
        return self._run([*run, *full], {**threads, **(environment or {})}, result)

    def mpi(self, place: Place, command: Sequence[str]) -> Figures:
        """ranks(), under Open MPI's own launcher."""
        result = self.file("result.json")
        mpirun = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        full = [*mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(place.ranks), *command]
        run = [str(program("gyre")), "run", "-n", "1", "--grace-seconds", str(_GRACE_SECONDS), "--"]
        environment = {"OMP_NUM_THREADS": str(place.threads)}
        return self._run([*run, *full, "--result", str(result)], environment, result)

    def sent_bytes(self, place: Place) -> list[int]:
        """What each of several hosts has sent so far, headers included; empty for one."""
        if place.hosts == 1:
            return []
        hosts = self.hosts(place)
        return [hosts.bytes_sent(host) for host in range(place.hosts)]

    def round_trip_us(self, place: Place) -> float:
        """From one of several hosts to another and back, measured on idle links."""
        self.hosts(place)
        return self._round_trip_us

    def end_hosts(self) -> None:
        """Removes the hosts that were made, if any."""
        if self._hosts is not None:
            self._hosts.down()
            self._hosts = None

    def hosts(self, place: Place, *, check: bool = True) -> Hosts:
        """The hosts of `place`; removes those of another place. `check`: measures their links, and notes what is wrong
        with them."""
        try:
            from hosts import DEFAULT_MTU, Hosts  # noqa: PLC0415 - a tool of the repository, not part of the package
        except ModuleNotFoundError:
            raise UsageError(
                "several hosts on one machine are made by a checkout's tools/hosts.py; run `./dev bench` there"
            ) from None
        mtu = place.packet_bytes or DEFAULT_MTU
        if self._hosts is not None and (self._hosts.count, self._hosts.rate, self._hosts.mtu) == (
            place.hosts,
            place.rate,
            mtu,
        ):
            return self._hosts
        self.end_hosts()
        self._hosts = Hosts.create(place.hosts, place.rate, mtu=mtu)
        if not check:
            return self._hosts
        reports = self._hosts.check()
        self._round_trip_us = statistics.median(report.round_trip_us for report in reports)
        for report in reports:
            link = f"host {report.source} to host {report.target}"
            self.say(f"{link}: {report.share:.1%} of what {place.rate} can carry, {report.round_trip_us:.0f} us")
            if report.share < _LEAST_SHARE:
                self.note(
                    f"the link from {link} gave only {report.share:.0%} of what {place.rate} can carry before the run: "
                    "the machine is busy with something else"
                )
        return self._hosts

    def _run_on_hosts(
        self,
        place: Place,
        command: Sequence[str],
        environment: Mapping[str, str],
        result: Path,
        host_of_rank: Sequence[int] | None,
    ) -> Figures:
        hosts = self.hosts(place)
        from hosts import HostsError, run_ranks  # noqa: PLC0415

        # Like the peers' links, for a fair comparison; encryption is measured on request.
        interface = {"GLOO_SOCKET_IFNAME": "eth0", "GYRE_TLS": "0", **self._torch_folder(), **environment}
        per_host = [place.ranks // place.hosts] * place.hosts
        try:
            ended = run_ranks(
                hosts,
                per_host,
                command,
                host_of_rank=host_of_rank,
                environment=interface,
                timeout_s=PROGRAM_TIMEOUT_SECONDS,
            )
        except HostsError as error:
            raise BenchError(f"{_shown(command)}\n{error}") from error
        for rank in ended:
            if rank.returncode != 0:
                words = rank.stderr[-_LAST_WORDS:].strip()
                raise BenchError(f"{_shown(command)}\nrank {rank.rank} ended with {rank.returncode}:\n{words}")
        figures: Figures = json.loads(result.read_text())
        return figures

    def _torch_folder(self) -> dict[str, str]:
        """torch creates a folder for its compiler, which is not used here; this sets where."""
        return {"TORCHINDUCTOR_CACHE_DIR": str(self.scratch / "torch")}

    def _run(self, command: Sequence[str], environment: Mapping[str, str], result: Path) -> Figures:
        log = self.file("output.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **self._torch_folder(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches only this process, which then ends the programs in good order.
                start_new_session=True,
            )
            try:
                code = process.wait(PROGRAM_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                raise BenchError(f"{_shown(command)}\ndid not end within {PROGRAM_TIMEOUT_SECONDS} s") from None
            finally:
                _end(process)
        if code != 0 or not result.exists():
            words = log.read_text(errors="replace")[-_LAST_WORDS:].strip()
            raise BenchError(f"{_shown(command)}\nended with {code} and no result:\n{words}")
        figures: Figures = json.loads(result.read_text())
        return figures


def _shown(command: Sequence[str]) -> str:
    return " ".join(command)


def _end(process: subprocess.Popen[bytes]) -> None:
    """`gyre run` ends its ranks on a signal; its guardian does so if it is killed."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10 * _GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Interrupted(BaseException):
    """A signal has ended the benchmark."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def launcher(*, verbose: bool) -> Iterator[Launcher]:
    """A Launcher whose programs and files are removed at the end of the block, even after SIGINT, SIGTERM or SIGHUP,
    which raise Interrupted."""

    def interrupt(number: int, _: object) -> None:
        raise Interrupted(number)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        with tempfile.TemporaryDirectory(prefix="gyre-bench-") as scratch:
            programs = Launcher(Path(scratch), verbose=verbose)
            try:
                yield programs
            finally:
                programs.end_hosts()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
