"""Which architecture should exchange the gradients of workers on several hosts, by the cost model of
gyre/collectives/exchange_cost.h, which `gyre bench ps` prints next to what it measures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gyre.bench.errors import UsageError
from gyre.bench.report import size_text, time_text
from gyre.core import _core
from gyre.explain.report import lined_up

Report = dict[str, Any]

_BLOCKS_OF_THE_PROGRAMS = 0
MOST_HOSTS = 10_000
_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


@dataclass(frozen=True)
class Setting:
    """Workers on a host each, with `size_bytes` of gradients, and hosts that could become servers."""

    workers: int
    size_bytes: int
    rate: str
    latency_us: float
    spare_hosts: int

    def cost(self, architecture: str, servers: int) -> Report:
        seconds, worker_bytes, server_bytes = _core.exchange_cost(
            architecture,
            servers,
            self.workers,
            self.size_bytes,
            bytes_per_second(self.rate),
            self.latency_us / 1e6,
            _BLOCKS_OF_THE_PROGRAMS,
        )
        return self._row(architecture, servers, seconds, worker_bytes, server_bytes)

    def choose(self, workers: int, spare_hosts: int) -> Report:
        """The fastest for this number of workers."""
        architecture, servers, cost = _core.choose_architecture(
            workers,
            self.size_bytes,
            bytes_per_second(self.rate),
            self.latency_us / 1e6,
            _BLOCKS_OF_THE_PROGRAMS,
            spare_hosts,
        )
        return self._row(architecture, servers, *cost) | {"workers": workers}

    def _row(self, architecture: str, servers: int, seconds: float, worker_bytes: float, server_bytes: float) -> Report:
        hosts = self.workers + (servers if architecture == "dedicated" else 0)
        sent = {"worker": worker_bytes, "server": server_bytes}
        return {
            "architecture": architecture,
            "servers": servers,
            "hosts": hosts,
            "step_us": 1e6 * seconds,
            "sent_bytes": sent,
        }


def bytes_per_second(rate: str) -> float:
    """ "100mbit" as a number. UsageError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", rate)
    if not match or float(match[1]) == 0:
        raise UsageError(f"--rate is '{rate}'; a rate such as 100mbit or 10gbit is needed")
    return float(match[1]) * _UNITS[match[2]] / 8


def _server_counts(setting: Setting) -> list[int]:
    """Powers of two, and the numbers at which something ends."""
    counts = {1 << power for power in range(setting.workers.bit_length())} | {setting.workers}
    if setting.spare_hosts:
        counts.add(min(setting.spare_hosts, setting.workers))
    return sorted(counts)


def explain(setting: Setting) -> Report:
    """The report: each architecture's cost, the choice, and what one more host would bring."""
    rows = [setting.cost("allreduce", 0)]
    rows += [setting.cost("colocated", servers) for servers in _server_counts(setting)]
    rows += [setting.cost("dedicated", servers) for servers in _server_counts(setting)]
    enough = next(
        (
            servers
            for servers in range(1, setting.workers + 1)
            if setting.cost("dedicated", servers)["step_us"] < rows[0]["step_us"]
        ),
        None,
    )
    return {
        "workers": setting.workers,
        "bytes": setting.size_bytes,
        "rate": setting.rate,
        "latency_us": setting.latency_us,
        "spare_hosts": setting.spare_hosts,
        "architectures": rows,
        "thresholds": dict(
            zip(("doubling_bytes", "halving_bytes"), _core.link_thresholds(setting.workers), strict=True)
        ),
        "servers_that_beat_allreduce": enough,
        "choice": setting.choose(setting.workers, setting.spare_hosts),
        "one_more_host": {
            "as_server": setting.choose(setting.workers, setting.spare_hosts + 1),
            "as_worker": setting.choose(setting.workers + 1, setting.spare_hosts),
        },
    }


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def name_of(row: Mapping[str, Any]) -> str:
    """ "8 dedicated servers" """
    if row["architecture"] == "allreduce":
        return "allreduce"
    if row["architecture"] == "dedicated":
        return _counted(row["servers"], "dedicated server")
    return f"{_counted(row['servers'], 'server')} on the workers' hosts"


def _table(report: Report) -> list[str]:
    lines = [("", "hosts", "time per step", "a worker's host sends", "a server's host sends")]
    for row in report["architectures"]:
        sent = row["sent_bytes"]
        lines.append(
            (
                name_of(row),
                str(row["hosts"]),
                time_text(row["step_us"]),
                size_text(sent["worker"]) if sent["worker"] else "-",
                size_text(sent["server"]) if sent["server"] else "-",
            )
        )
    width = max(len(line[0]) for line in lines)
    return lined_up([(line[0].ljust(width), *line[1:]) for line in lines])


def _one_more_host(report: Report) -> list[str]:
    now, more = report["choice"], report["one_more_host"]
    server, worker = more["as_server"], more["as_worker"]
    gain = now["step_us"] - server["step_us"]
    workers = report["workers"]
    if gain > 0:
        as_server = f"{name_of(server)}, {time_text(server['step_us'])}: {gain / now['step_us']:.0%} less"
    else:
        as_server = "no gain"
    return [
        f"One more host as a server: {as_server}.",
        f"One more host as a worker: {name_of(worker)}, {time_text(worker['step_us'])}, for {1 / workers:.0%} more "
        "samples in each step.",
    ]


def _thresholds(report: Report) -> str:
    doubling, halving = report["thresholds"]["doubling_bytes"], report["thresholds"]["halving_bytes"]
    words = f"An allreduce between {report['workers']} hosts goes by recursive doubling up to {size_text(doubling)}, "
    if halving > doubling:
        words += f"by halving and doubling up to {size_text(halving)}, "
    return words + "and by ring from there on; what is chosen does not depend on --rate and --latency-us."


def words(report: Report) -> str:
    """As readable text."""
    choice = report["choice"]
    spare = _counted(report["spare_hosts"], "spare host") if report["spare_hosts"] else "no spare host"
    lines = [
        f"{report['workers']} workers on a host each, {size_text(report['bytes'])} of gradients, links of "
        f"{report['rate']} in each direction, {time_text(report['latency_us'])} of latency.",
        "Predicted, as if nothing but the network took time:",
        "",
        *_table(report),
        "",
        _thresholds(report),
        f"With {spare}: {name_of(choice)}, {time_text(choice['step_us'])} per step.",
        *_one_more_host(report),
    ]
    enough = report["servers_that_beat_allreduce"]
    if enough is None:
        lines.append("No number of dedicated servers is faster than allreduce.")
    else:
        lines.append(
            f"Dedicated servers are faster than allreduce from {_counted(enough, 'server')} on; more than "
            f"{report['workers']} bring nothing."
        )
    return "\n".join(lines)
