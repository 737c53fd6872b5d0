"""What a job of many ranks costs each of them: start, first and steady allreduce of 4 bytes, memory, descriptors and
traffic of rank 0 and of the median rank. All ranks are processes of this machine; in half of the jobs they play hosts
of a few ranks each, which are linked over TCP and TLS, as between machines."""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

RANK = Path(__file__).resolve().parent.parent / "build" / "release" / "bin" / "gyre-bench-rank"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(ranks: int, command: list[str], environment: dict[str, str], folder: Path) -> list[subprocess.Popen[bytes]]:
    processes = []
    for rank in range(ranks):
        with (folder / f"error.{rank}").open("wb") as errors:
            own = {**environment, "GYRE_RANK": str(rank), "GYRE_SIZE": str(ranks)}
            processes.append(subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL, stderr=errors))
    return processes


def finish(processes: list[subprocess.Popen[bytes]], folder: Path, limit_s: float) -> None:
    until = time.monotonic() + limit_s
    try:
        for rank, process in enumerate(processes):
            if process.wait(timeout=max(0.1, until - time.monotonic())) == 0:
                continue
            raise SystemExit(f"rank {rank} ended with {process.returncode}: {(folder / f'error.{rank}').read_text()}")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(ranks: int, *, played: int, rounds: int, size: int, groups: bool, limit_s: float) -> dict[str, Any]:
    """One job: what rank 0 and the median rank saw."""
    median = ranks // 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key = folder / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        where = f"tcp:127.0.0.1:{free_port()}" if played else f"unix:{folder}/rendezvous"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GYRE_", "HOROVOD_"))},
            "GYRE_RENDEZVOUS": where,
            "GYRE_KEY_FILE": str(key),
            "GYRE_START_TIMEOUT_SECONDS": str(int(limit_s)),
        }
        command = [str(RANK), "scale", "--result", str(folder / "result"), "--rounds", str(rounds)]
        command += ["--reporters", f"0,{median}", "--started-ns", str(time.monotonic_ns())]
        command += ["--ranks-per-host", str(played)] if played else []
        command += ["--bytes", str(size)] if size else []
        command += ["--subset", "--messages"] if groups else []
        finish(start(ranks, command, environment, folder), folder, limit_s)
        seen = [json.loads((folder / f"result.{rank}").read_text()) for rank in (0, median)]
    hosts = ranks // played if played else 1
    return {"bench": "scale", "ranks": ranks, "hosts": hosts, "first": seen[0], "median": seen[1]}


def describe(row: dict[str, Any]) -> str:
    first, median = row["first"], row["median"]
    steady = first["steady"]
    cells = [
        f"{row['ranks']:,}",
        f"{row['hosts']:,}",
        f"{first['joined_s']:.2f} s",
        f"{first['first_us'] / 1000:.1f} ms",
        f"{steady['median_us'] / 1000:.2f} ms",
        f"{first['after']['pss_kb'] / 1024:.1f} MB",
        f"{(first['joined']['peak_rss_kb'] - first['before']['rss_kb']) / 1024:.1f} MB",
        f"{median['after']['pss_kb'] / 1024:.1f} MB",
        f"{first['after']['descriptors']:,}",
        f"{median['after']['descriptors']:,}",
    ]
    cells += [f"{first['joining']['bytes_out'] / 1024:,.0f} KB" if row["hosts"] > 1 else ""]
    cells += [f"{steady['packets_out']:,.0f} / {steady['packets_in']:,.0f}" if row["hosts"] > 1 else ""]
    cells += [f"{(steady['bytes_out'] + steady['bytes_in']) / 1024:,.1f} KB" if row["hosts"] > 1 else ""]
    return "| " + " | ".join(cells) + " |"


HEADER = """\
| ranks | hosts | all joined | first allreduce | steady | memory: rank 0 | more while joining | median rank | \
descriptors: rank 0 | median rank | sent by rank 0 while joining | packets out / in | bytes |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def describe_groups(row: dict[str, Any]) -> str:
    words = []
    for who in ("first", "median"):
        seen = row[who]
        for what, before, after in (
            ("process set", "after", "with_subset"),
            ("messages", "without_messages", "with_messages"),
        ):
            if after not in seen:
                continue
            grown = {name: seen[after][name] - seen[before][name] for name in seen[after]}
            words.append(
                f"{what} at {'rank 0' if who == 'first' else 'the median rank'}: {grown['pss_kb']:,} KB, "
                f"{grown['descriptors']} descriptors, {grown['threads']} threads"
            )
    return f"{row['ranks']:,} ranks, {row['hosts']:,} hosts: " + "; ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench scale", description=__doc__)
    parser.add_argument("--ranks", default="64,256,1024", help="numbers of ranks (default: 64,256,1024)")
    parser.add_argument(
        "--ranks-per-host", default="0,8", help="on each host that is played; 0: one real host (default: 0,8)"
    )
    parser.add_argument("--bytes", type=int, default=0, help="also an allreduce of so many, a multiple of 4")
    parser.add_argument("--rounds", type=int, default=20, help="of the steady allreduce (default: 20)")
    parser.add_argument("--groups", action="store_true", help="also a process set of all ranks, and messages")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one job (default: 300)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = []
    print(HEADER)
    for played in [int(n) for n in arguments.ranks_per_host.split(",")]:
        for ranks in [int(n) for n in arguments.ranks.split(",")]:
            row = measure(
                ranks,
                played=played,
                size=arguments.bytes,
                rounds=arguments.rounds,
                groups=arguments.groups,
                limit_s=arguments.limit,
            )
            rows.append(row)
            print(describe(row), flush=True)
            if arguments.bytes:
                print(f"  {arguments.bytes:,} bytes: {row['first']['large']['median_us'] / 1000:.1f} ms", flush=True)
    if arguments.groups:
        print("\n" + "\n".join(f"* {describe_groups(row)}" for row in rows))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
