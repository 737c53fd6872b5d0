"""`gyre bench ps`: one step through parameter servers (push the gradients, pull their average), compared with allreduce
and with the cost model.

Without --rate all ranks run on this host: the gradients are in memory that workers and servers share, as in training;
then in other memory; and the peer is torch's gloo: a reduce to each server's rank of its share, then a broadcast from
there. With --rate every worker has a host of its own, simulated on this machine, and so has every
dedicated server; colocated servers are on the first workers' hosts.

With --table-rows a table of rows is trained instead, by the servers' Adagrad: once so that only the rows that a step
touches travel, and once as a dense tensor.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gyre.bench.errors import UsageError
from gyre.bench.launch import Figures, Launcher, Place, module, program
from gyre.bench.options import Effort, add_output, choices_of, effort_of, integers, size_of
from gyre.bench.ps_tables import Ranks, Table, table_rows
from gyre.bench.report import Row
from gyre.core import _core

PLACEMENTS = ("dedicated", "colocated")
_LARGEST = 1 << 32
_MOST_WORKERS = 64
_MOST_ROWS = 1 << 28
_MOST_COLUMNS = 1 << 14
_NO_FUSION = {"GYRE_FUSION_BYTES": "0"}


@dataclass(frozen=True)
class Network:
    """Links of all hosts, and how much a worker's gradients are."""

    rate: str
    bytes_per_second: float
    latency_seconds: float


@dataclass(frozen=True)
class Case:
    """Workers and servers, and where the servers are."""

    workers: int
    servers: int
    placement: str  # Of PLACEMENTS.

    @property
    def ranks(self) -> int:
        return self.workers + self.servers

    @property
    def hosts(self) -> int:
        """With one worker on each."""
        return self.ranks if self.placement == "dedicated" else self.workers

    def host_of_rank(self) -> list[int]:
        """Servers are a job's first ranks. Workers are on the first hosts."""
        of_server = [server + (self.workers if self.placement == "dedicated" else 0) for server in range(self.servers)]
        return [*of_server, *range(self.workers)]


def add_verb(verbs: Any) -> None:
    parser = verbs.add_parser(
        "ps",
        help="a step through parameter servers, compared with allreduce",
        description=__doc__,
        epilog="example: ./dev bench ps --workers 4,8 --servers 1,2,4,8 --rate 100mbit,1gbit --bytes 4MB",
    )
    parser.add_argument("--workers", help="numbers of workers (default: 2; with --rate: 8)")
    parser.add_argument("--servers", help="numbers of servers (default: 1; with --rate: 1,2,4,8)")
    parser.add_argument(
        "--rate",
        help="rates of each host's link in each direction, such as 100mbit,1gbit: every worker then has a host of its "
        "own, a network namespace of this machine (as root; default: all on this host)",
    )
    parser.add_argument(
        "--placements", help="with --rate: dedicated (servers on hosts of their own), colocated or both (the default)"
    )
    parser.add_argument(
        "--bytes", help="gradients of one worker, a multiple of 4, such as 4MB (default: 100MB; with --rate: 4MB)"
    )
    parser.add_argument("--block", help="most bytes that travel as one (default: as the training programs choose)")
    parser.add_argument("--table-rows", help="trains a table of so many rows, such as 1000000, on dedicated servers")
    parser.add_argument("--columns", help="of the table (default: 64)")
    parser.add_argument("--step-rows", help="rows that each worker's step touches (default: 1000)")
    parser.add_argument(
        "--tensorflow",
        metavar="PYTHON",
        help="without --rate: a Python that has TensorFlow, whose ParameterServerStrategy is measured, too",
    )
    add_output(parser, seconds=2)
    parser.set_defaults(measure=measure)


def _bytes_of(text: str, option: str) -> int:
    size = size_of(text, option)
    if size < 4 or size % 4 or size > _LARGEST:
        raise UsageError(f"{option} is '{text}'; a multiple of 4 up to 4 GB is needed")
    return size


def _rates_of(text: str) -> list[str]:
    rates = text.split(",")
    for rate in rates:
        if not re.fullmatch(r"\d+(\.\d+)?(kbit|mbit|gbit)", rate) or float(rate[:-4]) == 0:
            raise UsageError(f"--rate has '{rate}'; rates such as 100mbit or 1gbit are needed")
    return rates


def cases_of(workers: Sequence[int], servers: Sequence[int], placements: Sequence[str]) -> list[Case]:
    """All combinations but those with more colocated servers than workers, which have no host. UsageError if none is
    left."""
    cases = [
        Case(worker_count, server_count, placement)
        for worker_count in workers
        for placement in placements
        for server_count in servers
        if placement == "dedicated" or server_count <= worker_count
    ]
    if not cases:
        raise UsageError("there are more colocated servers than workers, on whose hosts they are: none can be measured")
    return cases


def measure(arguments: argparse.Namespace, launcher: Launcher) -> list[Row]:
    over_links = arguments.rate is not None
    workers = integers(arguments.workers or ("8" if over_links else "2"), "--workers", 1, _MOST_WORKERS)
    servers = integers(arguments.servers or ("1,2,4,8" if over_links else "1"), "--servers", 1, _MOST_WORKERS)
    size = _bytes_of(arguments.bytes or ("4MB" if over_links else "100MB"), "--bytes")
    block = _bytes_of(arguments.block, "--block") if arguments.block else None
    effort = effort_of(arguments)
    if arguments.placements is not None and not over_links:
        raise UsageError("--placements is about hosts; --rate makes them")
    if arguments.table_rows is not None:
        return _on_tables(launcher, arguments, workers, servers, effort)
    if arguments.columns is not None or arguments.step_rows is not None:
        raise UsageError("--columns and --step-rows are about a table, which --table-rows makes")
    if not over_links:
        tensorflow = _tensorflow(arguments.tensorflow)
        cases = cases_of(workers, servers, ["dedicated"])
        return [_on_one_host(launcher, case, size, block, effort, tensorflow) for case in cases]
    if arguments.tensorflow is not None:
        raise UsageError("--tensorflow is measured on one host, without --rate")
    placements = choices_of(arguments.placements or ",".join(PLACEMENTS), "--placements", PLACEMENTS)
    cases = cases_of(workers, servers, placements)
    rows = []
    for rate in _rates_of(arguments.rate):
        rows += _over_links(launcher, rate, workers, cases, size, block, effort)
    return rows


def _on_tables(
    launcher: Launcher, arguments: argparse.Namespace, workers: list[int], servers: list[int], effort: Effort
) -> list[Row]:
    (count,) = integers(arguments.table_rows, "--table-rows", 1, _MOST_ROWS)[:1]
    (columns,) = integers(arguments.columns or "64", "--columns", 1, _MOST_COLUMNS)[:1]
    (step_rows,) = integers(arguments.step_rows or "1000", "--step-rows", 1, count)[:1]
    rates = _rates_of(arguments.rate) if arguments.rate is not None else [None]
    rows = []
    for rate in rates:
        for worker_count in workers:
            for server_count in servers:
                ranks = Ranks(worker_count, server_count, rate)
                rows += table_rows(launcher, ranks, Table(count, columns, step_rows), effort)
    return rows


def _tensorflow(python: str | None) -> str | None:
    """UsageError where this Python does not have it."""
    if python is None:
        return None
    found = shutil.which(python)
    check = [found or python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('tensorflow') is None)"]
    if found is None or subprocess.run(check, capture_output=True, check=False).returncode != 0:
        raise UsageError(f"--tensorflow {python} is not a Python that has TensorFlow")
    return found


def _command(case: Case, size: int, block: int | None, effort: Effort, server_results: Path) -> list[str]:
    return [
        str(program("gyre-bench-rank")), "servers", "--servers", str(case.servers), "--bytes", str(size),
        *(["--block-bytes", str(block)] if block else []),
        "--seconds", str(effort.seconds), "--server-results", str(server_results),
    ]  # fmt: skip


@dataclass(frozen=True)
class _Run:
    """One run of a job with servers."""

    figures: Figures
    processor_seconds: float  # Of all servers.
    sent_bytes: list[int]  # By host, in all.


def _run(
    launcher: Launcher, place: Place, case: Case, size: int, block: int | None, effort: Effort, *more: str,
) -> _Run:  # fmt: skip
    """`more`: options of gyre-bench-rank."""
    server_results = launcher.file("servers")
    command = [*_command(case, size, block, effort, server_results), *more]
    before = launcher.sent_bytes(place)
    figures = launcher.ranks(place, command, host_of_rank=case.host_of_rank() if place.hosts > 1 else None)
    sent = [after - earlier for after, earlier in zip(launcher.sent_bytes(place), before, strict=True)]
    used = [
        json.loads(server_results.with_name(f"{server_results.name}.{server}").read_text())["processor_seconds"]
        for server in range(case.servers)
    ]
    return _Run(figures, sum(used), sent)


def _common(case: Case, size: int, runs: Sequence[_Run]) -> Row:
    """What rows of one host and of several have."""
    steps = [run.figures["steps"] for run in runs]
    return {
        "bench": "ps",
        "architecture": case.placement,
        "workers": case.workers,
        "servers": case.servers,
        "ranks": case.ranks,
        "bytes": size,
        "block_bytes": runs[0].figures["block_bytes"],
        "ours_us": statistics.median(run.figures["step_us"] for run in runs),
        # Of what the servers receive; they send as much.
        "server_ns_per_byte": statistics.median(
            1e9 * run.processor_seconds / (count * case.workers * size) for run, count in zip(runs, steps, strict=True)
        ),
    }


def _on_one_host(
    launcher: Launcher, case: Case, size: int, block: int | None, effort: Effort, tensorflow: str | None
) -> Row:
    place, among_workers = Place(case.ranks), Place(case.workers)
    where = f"ps, {case.workers} workers, {case.servers} servers"
    runs, other_memory, allreduce = [], [], []
    peers: dict[str, list[Figures]] = {"gloo_us": [], **({"tensorflow_us": []} if tensorflow else {})}
    for _ in range(effort.repeats):
        launcher.say(f"{where}: ours")
        runs.append(_run(launcher, place, case, size, block, effort))
        launcher.say(f"{where}: ours, in other memory")
        other_memory.append(_run(launcher, place, case, size, block, effort, "--own-buffers"))
        launcher.say(f"{where}: torch's gloo")
        words = ["--servers", str(case.servers), "--bytes", str(size), "--seconds", str(effort.seconds)]
        store = ["--store", str(launcher.file("store"))]
        peers["gloo_us"].append(launcher.ranks(place, module("gloo_ps", *words, *store)))
        if tensorflow:
            launcher.say(f"{where}: TensorFlow")
            # It imports nothing of Gyre, which its Python need not have. One more rank coordinates the others.
            command = [tensorflow, "-P", str(Path(__file__).parent / "ranks" / "tensorflow_ps.py"), *words]
            store = ["--store", str(launcher.file("store"))]
            peers["tensorflow_us"].append(launcher.ranks(Place(case.ranks + 1), [*command, *store]))
        launcher.say(f"{where}: our allreduce")
        allreduce.append(_allreduce(launcher, among_workers, size, effort))
    return {
        **_common(case, size, runs),
        "architecture": "one host",
        "hosts": 1,
        "other_memory_us": statistics.median(run.figures["step_us"] for run in other_memory),
        # Each gradient has to be read once and written once, as in an allreduce.
        "bound_us": among_workers.bound_us(
            size, statistics.median(figures["bound_bytes_per_second"] for figures in allreduce)
        ),
        "peers": {name: statistics.median(figures["step_us"] for figures in turns) for name, turns in peers.items()},
        "allreduce_us": statistics.median(figures["tensor"][str(size)] for figures in allreduce),
    }


def _allreduce(launcher: Launcher, place: Place, size: int, effort: Effort, hosts: list[int] | None = None) -> Figures:
    command = [str(program("gyre-bench-rank")), "allreduce", "--sizes", str(size), "--seconds", str(effort.seconds)]
    return launcher.ranks(place, [*command, "--paths", "tensor"], _NO_FUSION, host_of_rank=hosts)


def _over_links(
    launcher: Launcher,
    rate: str,
    workers: Sequence[int],
    cases: Sequence[Case],
    size: int,
    block: int | None,
    effort: Effort,
) -> list[Row]:
    """All rows of one rate, on one set of hosts."""
    hosts = max(2, *(case.hosts for case in cases), *workers)
    latency_seconds = launcher.round_trip_us(Place(hosts, hosts, rate)) / 2e6
    from hosts import bits_per_second  # noqa: PLC0415 - a tool of the repository, which made the hosts

    network = Network(rate, bits_per_second(rate) / 8, latency_seconds)
    rows: list[Row] = []
    for worker_count in workers:
        turns = []
        for _ in range(effort.repeats):
            launcher.say(f"allreduce, {worker_count} workers at {rate}")
            place = Place(worker_count, hosts, rate)
            turns.append(_allreduce(launcher, place, size, effort, list(range(worker_count))))
        rows.append(_allreduce_row(worker_count, size, network, turns))
        for case in cases:
            if case.workers != worker_count:
                continue
            runs = []
            for _ in range(effort.repeats):
                launcher.say(f"{case.servers} {case.placement} servers, {worker_count} workers at {rate}")
                runs.append(_run(launcher, Place(case.ranks, hosts, rate), case, size, block, effort))
            rows.append(_server_row(case, size, network, runs))
    return rows


def _predicted(architecture: str, row: Mapping[str, Any], network: Network) -> Row:
    """By the cost model of gyre/collectives/exchange_cost.h. The bound has no latency and no blocks to wait for: what
    the busiest direction of a link carries, at the link's rate."""

    def cost(latency_seconds: float, block_bytes: int) -> tuple[float, float, float]:
        return _core.exchange_cost(
            architecture,
            row["servers"],
            row["workers"],
            row["bytes"],
            network.bytes_per_second,
            latency_seconds,
            block_bytes,
        )

    seconds, worker_bytes, server_bytes = cost(network.latency_seconds, row.get("block_bytes", 0))
    return {
        "rate": network.rate,
        "predicted_us": 1e6 * seconds,
        "bound_us": 1e6 * cost(0, 4)[0],
        "predicted_sent_bytes": {"worker": worker_bytes, "server": server_bytes},
    }


def _allreduce_row(workers: int, size: int, network: Network, turns: Sequence[Figures]) -> Row:
    row: Row = {
        "bench": "ps",
        "architecture": "allreduce",
        "workers": workers,
        "servers": 0,
        "ranks": workers,
        "hosts": workers,
        "bytes": size,
        "ours_us": statistics.median(turn["tensor"][str(size)] for turn in turns),
        "sent_bytes": {"worker": max(turns[0]["sent_bytes"]["tensor"][str(size)]), "server": 0},
        "peers": {},
    }
    return row | _predicted("allreduce", row, network)


def _server_row(case: Case, size: int, network: Network, runs: Sequence[_Run]) -> Row:
    row = {**_common(case, size, runs), "hosts": case.hosts, "peers": {}}
    place = case.host_of_rank()
    server_hosts = set(place[: case.servers])
    sent = {"worker": 0.0, "server": 0.0}
    for host in range(case.hosts):
        role = "server" if host in server_hosts else "worker"
        each = statistics.median(run.sent_bytes[host] / run.figures["steps"] for run in runs)
        sent[role] = max(sent[role], each)
    return row | {"sent_bytes": sent} | _predicted(case.placement, row, network)
