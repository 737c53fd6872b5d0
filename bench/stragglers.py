"""What one slow worker costs, by consistency: `gyre run --servers`, with workers whose steps are pauses (of a step's
time, one of them of `--slowdown` times that), so that two cores can play any number of them."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GYRE = ROOT / "build" / "release" / "bin" / "gyre"
CONSISTENCIES = ("sync", "async", "bounded:8", "backup:1")
VALUES = 16_384
LONGEST_SECONDS = 300


def work(consistency: str, step_seconds: float, slowdown: float, seconds: float) -> None:
    """A worker; the last one is slow. Prints how many of its steps counted, and the time they took."""
    import torch  # noqa: PLC0415

    import gyre.params as ps  # noqa: PLC0415 - only ranks need torch

    ps.init()
    parameter = torch.nn.Parameter(torch.zeros(VALUES))
    optimizer = ps.ParameterServerOptimizer(torch.optim.SGD([parameter], 0.1), consistency=consistency)
    pause = step_seconds * (slowdown if ps.rank() == ps.size() - 1 else 1)
    ps.sum_over_workers([1.0])  # All are there.
    begin = time.monotonic()
    # In sync all take the same number of steps, as many as the slowest one can; otherwise each what it can.
    steps = round(seconds / (step_seconds * slowdown)) if consistency == "sync" else sys.maxsize
    taken = 0
    while taken < steps and time.monotonic() < begin + 2 * seconds:
        if consistency != "sync" and time.monotonic() > begin + seconds:
            break
        time.sleep(pause)
        parameter.grad = torch.ones(VALUES)
        optimizer.step()
        taken += 1
    elapsed = time.monotonic() - begin
    print(json.dumps({"rank": ps.rank(), "steps": taken - optimizer.dropped_steps, "seconds": elapsed}), flush=True)
    ps.shutdown()


def measure(consistency: str, options: argparse.Namespace, slowdown: float) -> float:
    """Gradients per second that all workers together contribute."""
    worker = [sys.executable, __file__, "--as-worker", consistency, str(options.step), str(slowdown)]
    command = [str(GYRE), "run", "-n", str(options.workers), "--servers", str(options.servers), "--", *worker]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [*command, str(options.seconds)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    rows = [json.loads(text) for text in re.findall(r"\{.*\}", result.stdout)]
    if result.returncode != 0 or len(rows) != options.workers:
        sys.exit(f"the workers failed:\n{result.stdout}{result.stderr}")
    return float(sum(row["steps"] / row["seconds"] for row in rows))


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--as-worker"]:
        consistency, step, slowdown, seconds = arguments[1:]
        return work(consistency, float(step), float(slowdown), float(seconds))
    parser = argparse.ArgumentParser(prog="./dev bench stragglers", description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--step", type=float, default=0.1, help="seconds of a step (0.1)")
    parser.add_argument("--slowdown", type=float, default=4, help="times a step of the last worker takes (4)")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement (10)")
    parser.add_argument("--json", type=Path, help="also write the rows there")
    options = parser.parse_args(arguments)
    fast = options.workers - 1
    full = options.workers / options.step
    bounds = {
        "sync": full / options.slowdown,
        "async": (fast + 1 / options.slowdown) / options.step,
        "backup:1": fast / options.step,
    }
    rows = []
    print("consistency   gradients/s   without a slow worker   possible   share of that")
    for consistency in CONSISTENCIES:
        slowed, even = measure(consistency, options, options.slowdown), measure(consistency, options, 1)
        bound = bounds.get(consistency)
        share = "" if bound is None else f"{bound:>9.1f}   {slowed / bound:>12.0%}"
        print(f"{consistency:<11} {slowed:>13.1f} {even:>23.1f}  {share}", flush=True)
        rows.append({"consistency": consistency, "gradients_per_s": slowed, "even": even, "possible": bound})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
