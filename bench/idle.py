"""What a job costs that has joined, exchanged once and now does nothing: share of a core per rank."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A rank that trains one step through each of the engine's lanes, then sleeps and looks at its own clock.
RANK = """
import json, sys, time
import torch
import gyre.torch as hvd

hvd.init()
model = torch.nn.Linear(64, 64)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
model(torch.ones(4, 64)).sum().backward()
optimizer.step()
hvd.allreduce(torch.ones(4))
time.sleep(0.5)
wall, cpu = time.monotonic(), time.process_time()
time.sleep(float(sys.argv[1]))
share = (time.process_time() - cpu) / (time.monotonic() - wall)
shares = hvd.allgather(torch.tensor([share], dtype=torch.float64))
if hvd.rank() == 0:
    print(json.dumps(shares.tolist()), flush=True)
hvd.shutdown()
"""


def measure(ranks: int, seconds: float) -> list[float]:
    gyre = str(ROOT / "build" / "release" / "bin" / "gyre")
    command = [gyre, "run", "-n", str(ranks), "--", sys.executable, "-c", RANK, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout[done.stdout.index("[", 3) :])


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench idle", description=__doc__)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (default: 2,4)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to do nothing (default: 5)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    arguments = parser.parse_args()
    rows = []
    for ranks in [int(n) for n in arguments.ranks.split(",")]:
        shares = measure(ranks, arguments.seconds)
        rows.append({"bench": "idle", "ranks": ranks, "core_share_per_rank": shares})
        print(f"{ranks} ranks: at most {max(shares):.3%} of a core per rank")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
