"""gyre.data.Loader: JPEGs to augmented 224 x 224 float32."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from gyre.data import Loader, image, ints


def forget(paths: Sequence[Path]) -> None:
    """Drops the files from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # Pages not yet written to disk stay.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def measure(loader: Loader, seconds: float, files: Sequence[Path], cold: bool) -> dict[str, float]:
    """Whole epochs, the first of which warms up unless the cache is to be cold."""
    images = 0
    spent = 0.0
    first_batch = 0.0
    epoch = 0
    while spent < seconds:
        if cold:
            forget(files)
        began = time.perf_counter()
        seen = 0
        for batch in loader:
            seen += batch.counted
        if epoch > 0 or cold:
            spent += time.perf_counter() - began
            images += seen
            first_batch = max(first_batch, loader.ledger().first_batch)
        epoch += 1
    return {"per_second": images / spent, "first_batch_s": first_batch}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", type=Path)
    parser.add_argument("--key", default="image")
    parser.add_argument("--label", default="label")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--budget", type=int, default=1 << 30)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--blocks", action="store_true", help="shuffle in blocks")
    options = parser.parse_args()
    began = time.perf_counter()
    loader = Loader(
        options.files,
        {"image": image(224, augment=True, key=options.key), "label": ints(key=options.label)},
        batch_size=options.batch,
        threads=options.threads,
        shuffle="block" if options.blocks else True,
        drop_last=True,
        memory_budget=options.budget,
    )
    next(iter(loader))
    start = time.perf_counter() - began
    files = [path for path in options.files.rglob("*") if path.is_file()] if options.files.is_dir() else []
    if not files:
        files = sorted(options.files.parent.glob(options.files.name))
    figures = measure(loader, options.seconds, files, options.cold)
    print(json.dumps({**figures, "start_s": start, "memory_bytes": loader._core.memory_bytes}))


if __name__ == "__main__":
    main()
