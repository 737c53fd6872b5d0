"""What membership costs: time and processor time of a job of n ranks that only join and leave, median of the rounds."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import time
from pathlib import Path

RELEASE = Path(__file__).resolve().parent.parent / "build" / "release"


def measure(ranks: int) -> tuple[float, float]:
    """Seconds elapsed, and seconds of processor time of the launcher and all ranks, for one job."""
    probe = RELEASE / "tests" / "cluster" / "gyre_join_probe"
    command = [str(RELEASE / "bin" / "gyre"), "run", "-n", str(ranks), "--", str(probe), "join-only"]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    elapsed, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0 or done.stdout.count(f" size={ranks} ") != ranks:
        raise SystemExit(done.stderr)
    return elapsed, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench join", description=__doc__)
    parser.add_argument("--ranks", default="16,64,128,256", help="numbers of ranks (default: 16,64,128,256)")
    parser.add_argument("--rounds", type=int, default=3, help="jobs per number of ranks (default: 3)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    arguments = parser.parse_args()
    rows = []
    for ranks in [int(n) for n in arguments.ranks.split(",")]:
        rounds = [measure(ranks) for _ in range(arguments.rounds)]
        elapsed, processor = (statistics.median(times) for times in zip(*rounds, strict=True))
        rows.append({"bench": "join", "ranks": ranks, "elapsed_s": elapsed, "processor_s": processor})
        print(f"{ranks:4} ranks: {elapsed:5.2f} s elapsed, {processor:5.2f} s of processor time", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
