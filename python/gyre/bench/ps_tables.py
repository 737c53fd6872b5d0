"""The part of `gyre bench ps` about tables: steps that touch few of an embedding's rows, which alone travel, compared
with the same table as a dense tensor. Both are stepped by the servers' Adagrad."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from gyre.bench.launch import Figures, Launcher, Place, program
from gyre.bench.options import Effort
from gyre.bench.report import Row

_VALUE_BYTES = 4
_NUMBER_BYTES = 4  # Of a row, on its server.


@dataclass(frozen=True)
class Table:
    """An embedding, and how many of its rows each worker's step touches."""

    rows: int
    columns: int
    step_rows: int

    @property
    def dense_bytes(self) -> int:
        return self.rows * self.columns * _VALUE_BYTES

    @property
    def step_bytes(self) -> int:
        """Of one worker's rows, with their numbers."""
        return self.step_rows * (self.columns * _VALUE_BYTES + _NUMBER_BYTES)


@dataclass(frozen=True)
class Ranks:
    """Workers and servers, all on one host, or each on its own."""

    workers: int
    servers: int
    rate: str | None

    @property
    def hosts(self) -> int:
        return self.workers + self.servers if self.rate else 1

    @property
    def place(self) -> Place:
        size = self.workers + self.servers
        return Place(size, size, self.rate) if self.rate else Place(size)

    @property
    def host_of_rank(self) -> list[int] | None:
        """Servers are a job's first ranks; workers are on the first hosts."""
        servers = range(self.workers, self.workers + self.servers)
        return [*servers, *range(self.workers)] if self.rate else None


def _run(launcher: Launcher, ranks: Ranks, table: Table, effort: Effort, *, dense: bool) -> Figures:
    command = [
        str(program("gyre-bench-rank")), "servers", "--servers", str(ranks.servers), "--table-rows", str(table.rows),
        "--columns", str(table.columns), "--step-rows", str(table.step_rows), *(["--dense"] if dense else []),
        "--seconds", str(effort.seconds), "--server-results", str(launcher.file("servers")),
    ]  # fmt: skip
    return launcher.ranks(ranks.place, command, host_of_rank=ranks.host_of_rank)


def table_rows(launcher: Launcher, ranks: Ranks, table: Table, effort: Effort) -> list[Row]:
    """Two rows of figures: of the rows that travel alone, and of the dense table."""
    what = f"{table.step_rows} of {table.rows} rows x {table.columns}"
    figures: dict[bool, list[Figures]] = {False: [], True: []}
    for _ in range(effort.repeats):
        for dense in (False, True):
            launcher.say(f"{what}{', dense' if dense else ''}, {ranks.workers} workers, {ranks.servers} servers")
            figures[dense].append(_run(launcher, ranks, table, effort, dense=dense))
    steps = {dense: statistics.median(run["step_us"] for run in runs) for dense, runs in figures.items()}
    return [
        {
            "bench": "ps",
            "architecture": f"{what}, dense" if dense else what,
            "workers": ranks.workers,
            "servers": ranks.servers,
            "ranks": ranks.workers + ranks.servers,
            "hosts": ranks.hosts,
            **({"rate": ranks.rate} if ranks.rate else {}),
            "bytes": table.dense_bytes if dense else table.step_bytes,
            "ours_us": steps[dense],
            "peers": {},
            **({} if dense else {"dense_us": steps[True]}),
            **(_sent(figures[dense], ranks) if ranks.rate else {}),
        }
        for dense in (False, True)
    ]


def _sent(runs: list[Figures], ranks: Ranks) -> Row:
    """What a worker's host sends in a step, and a server's."""
    sent = statistics.median(run["sent_bytes"] for run in runs)
    received = statistics.median(run["received_bytes"] for run in runs)
    return {"sent_bytes": {"worker": sent, "server": received * ranks.workers / ranks.servers}}
