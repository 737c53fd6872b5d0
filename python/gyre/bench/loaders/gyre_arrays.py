"""gyre.data.Loader: arrays of int16 from Parquet files, without conversion."""

from __future__ import annotations

import argparse
import json
import time

from gyre.bench.loaders.gyre_images import measure
from gyre.data import Loader, raw


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files")
    parser.add_argument("--values", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--budget", type=int, default=1 << 30)
    options = parser.parse_args()
    began = time.perf_counter()
    loader = Loader(
        options.files,
        {"x": raw("int16", options.values)},
        batch_size=options.batch,
        threads=options.threads,
        shuffle="block",
        drop_last=True,
        memory_budget=options.budget,
    )
    next(iter(loader))
    start = time.perf_counter() - began
    figures = measure(loader, options.seconds, [], cold=False)
    print(json.dumps({**figures, "start_s": start, "memory_bytes": loader._core.memory_bytes}))


if __name__ == "__main__":
    main()
