"""One worker of a training whose step takes a fixed time: reads its batches of CosmoFlow's volumes, and sleeps the rest
of each step. Prints {"began", "ended"}: seconds since the epoch.

Before the first batch it writes the file READY, and waits for the file GO, so that all workers begin together.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from gyre.data import Loader, raw

_LONGEST_WAIT_SECONDS = 300


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file} has not come")
        time.sleep(0.005)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("--ready", type=Path, required=True)
    parser.add_argument("--go", type=Path, required=True)
    options = parser.parse_args()
    loader = Loader(
        options.files,
        {"x": raw("int16", (options.size, options.size, options.size, 4))},
        batch_size=options.batch,
        rank=options.rank,
        world_size=options.world_size,
        threads=1,
        records_per_file=1,
        output="numpy",
    )
    options.ready.touch()
    wait_for(options.go)
    began = time.time()
    iterations = 0
    for _ in loader:
        iterations += 1
        # A step begins when its batch is there, and not before the one before it has ended.
        time.sleep(options.step_seconds)
    print(json.dumps({"began": began, "ended": time.time(), "iterations": iterations}))


if __name__ == "__main__":
    main()
