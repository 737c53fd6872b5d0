"""gyre.data.Loader: CosmoFlow's volumes, as int16 or as float32 log(1 + x)."""

from __future__ import annotations

import argparse
import json
import time

from gyre.bench.loaders.gyre_images import measure
from gyre.data import Loader, raw


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--log", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    shape = (options.size, options.size, options.size, 4)
    volume = raw("int16", shape, dtype="float32", transform="log1p") if options.log else raw("int16", shape)
    began = time.perf_counter()
    loader = Loader(options.files, {"x": volume}, batch_size=options.batch, threads=options.threads, records_per_file=1)
    next(iter(loader))
    start = time.perf_counter() - began
    figures = measure(loader, options.seconds, [], cold=False)
    print(json.dumps({**figures, "start_s": start, "memory_bytes": loader._core.memory_bytes}))


if __name__ == "__main__":
    main()
