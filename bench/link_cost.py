"""What an allreduce over hosts costs with encryption and without: its share of the wire, and the processor time of both
ends for each GB that crosses a link (root; Linux)."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
from pathlib import Path
from typing import Any

from hosts import Hosts, run_ranks

ROOT = Path(__file__).resolve().parent.parent
RANK = ROOT / "build" / "release" / "bin" / "gyre-bench-rank"
HOSTS = 2
RATE = "1gbit"


def processor_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(hosts: Hosts, size: int, seconds: float, *, encrypted: bool) -> dict[str, Any]:
    """One run of a rank on each host."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [str(RANK), "allreduce", "--paths", "arena", "--sizes", str(size), "--rotation-bytes", "1"]
        command += ["--seconds", str(seconds), "--result", str(result)]
        used, sent = processor_seconds(), [hosts.bytes_sent(host) for host in range(HOSTS)]
        ended = run_ranks(hosts, [1] * HOSTS, command, environment={"GYRE_TLS": "1" if encrypted else "0"})
        used = processor_seconds() - used
        crossed = sum(hosts.bytes_sent(host) - before for host, before in enumerate(sent))
        for rank in ended:
            if rank.returncode != 0:
                raise SystemExit(f"rank {rank.rank} ended with {rank.returncode}: {rank.stderr}")
        ours_us = json.loads(result.read_text())["arena"][str(size)]
    wire_us = size * 8 / 1e9 * 1e6
    return {"encrypted": encrypted, "share": wire_us / ours_us, "seconds_per_gb": used / (crossed / 1e9)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench link_cost", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of measuring per run (default: 4)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind, in turns (default: 5)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    arguments = parser.parse_args()
    size = 4 << 20
    runs: list[dict[str, Any]] = []
    with Hosts.create(HOSTS, RATE) as hosts:
        for _ in range(arguments.rounds):
            runs += [measure(hosts, size, arguments.seconds, encrypted=encrypted) for encrypted in (False, True)]
    rows = []
    for encrypted in (False, True):
        row = {
            "bench": "link_cost",
            "ranks": HOSTS,
            "hosts": HOSTS,
            "rate": RATE,
            "bytes": size,
            "encrypted": encrypted,
        }
        for name in ("share", "seconds_per_gb"):
            row[name] = statistics.median(run[name] for run in runs if run["encrypted"] == encrypted)
        rows.append(row)
        words = "encrypted" if encrypted else "plain"
        print(f"{words}: {row['share']:.1%} of the wire, {row['seconds_per_gb']:.2f} s of processor time per GB")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
