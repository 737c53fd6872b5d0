"""Allreduce, from 4 B to 256 MB: Gyre beside torch's gloo and Open MPI, in the same run.

Times are medians over buffers that rotate through more memory than the last-level cache holds, as rank 0 sees them;
every program checks its answer. The bound is the memory traffic that cannot be avoided when the buffers are shared,
each rank's copy read once and written once, at the rate at which this machine copies memory, measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench" / "peers"
SIZES = [4, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
PROGRAM_TIMEOUT_S = 900


def text_of(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1024 or unit == "MB":
            return f"{size:g} {unit}"
        size /= 1024
    raise AssertionError(size)


def run(command: list[str]) -> dict:
    """The JSON object that one of the ranks prints."""
    # Without fusion, so that every tensor of the arena is a collective of its own.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GYRE_FUSION_BYTES": "0", "PYTHONPATH": str(PEERS)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S, check=False
    )
    for line in done.stdout.splitlines():
        start = line.find("{")
        if start >= 0:
            return json.loads(line[start:])
    raise SystemExit(f"{' '.join(command)}\nended with {done.returncode} and no result:\n{done.stderr[-2000:]}")


def commands(ranks: int, sizes: str) -> dict[str, list[str]]:
    found = {
        "ours": [
            str(ROOT / ".venv/bin/gyre"), "run", "-n", str(ranks), "--",
            str(ROOT / "build/release/bench/gyre-bench-allreduce"), "--sizes", sizes,
        ],
        "gloo": [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
            str(PEERS / "gloo_allreduce.py"), sizes,
        ],
    }  # fmt: skip
    if shutil.which("mpirun"):
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        found["openmpi"] = [
            "mpirun", *as_root, "--oversubscribe", "--bind-to", "none", "-n", str(ranks),
            sys.executable, str(PEERS / "openmpi_allreduce.py"), sizes,
        ]  # fmt: skip
    return found


def measure(ranks: int, sizes: list[int], repeats: int) -> list[dict]:
    results: dict[str, list[dict]] = {}
    for _ in range(repeats):  # The programs take turns, so that a noisy minute hits all alike.
        for name, command in commands(ranks, ",".join(map(str, sizes))).items():
            results.setdefault(name, []).append(run(command))
    ours = results.pop("ours")
    copy_rate = statistics.median(result["memcpy_bytes_per_second"] for result in ours)
    rows = []
    for size in sizes:
        peers = {
            f"{name}_us": statistics.median(result[str(size)] for result in several)
            for name, several in results.items()
        }
        for path in ("arena", "tensor"):
            rows.append(
                {
                    "bench": "allreduce",
                    "ranks": ranks,
                    "bytes": size,
                    "path": path,
                    "face": "cpp",
                    "hosts": 1,
                    "ours_us": statistics.median(result[path][str(size)] for result in ours),
                    "peers": peers,
                    "bound_us": ranks * size / copy_rate * 1e6,
                }
            )
    return rows


def table(rows: list[dict]) -> str:
    lines = [
        f"{'ranks':>5} {'size':>7} {'path':>7} {'ours us':>10} {'GB/s':>7} {'gloo us':>10} {'gloo/ours':>9} "
        f"{'openmpi us':>10} {'ompi/ours':>9} {'bound us':>9} {'of bound':>8}"
    ]
    for row in rows:
        ours = row["ours_us"]
        gloo, mpi = row["peers"].get("gloo_us"), row["peers"].get("openmpi_us")
        lines.append(
            f"{row['ranks']:>5} {text_of(row['bytes']):>7} {row['path']:>7} {ours:>10.1f} "
            f"{row['bytes'] / ours / 1e3:>7.2f} {gloo:>10.1f} {gloo / ours:>9.1f} "
            + (f"{mpi:>10.1f} {mpi / ours:>9.1f} " if mpi else f"{'-':>10} {'-':>9} ")
            + f"{row['bound_us']:>9.1f} {row['bound_us'] / ours:>8.0%}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench allreduce", description=__doc__)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (default: 2,4)")
    parser.add_argument("--sizes", help="sizes in bytes, multiples of 4 (default: 4 B to 256 MB)")
    parser.add_argument("--repeats", type=int, default=1, help="turns per program; medians over them (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    arguments = parser.parse_args()
    try:
        ranks = [int(n) for n in arguments.ranks.split(",")]
        sizes = [int(size) for size in arguments.sizes.split(",")] if arguments.sizes else SIZES
    except ValueError as error:
        parser.error(f"numbers separated by commas are needed: {error}")
    if any(n < 1 for n in ranks) or any(size < 4 or size % 4 for size in sizes) or arguments.repeats < 1:
        parser.error("ranks and repeats must be at least 1, sizes multiples of 4")
    rows = []
    for n in ranks:
        rows += measure(n, sizes, arguments.repeats)
    print(table(rows))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
