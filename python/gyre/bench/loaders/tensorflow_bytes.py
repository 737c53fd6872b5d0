"""tf.data: reads files from their beginnings to their ends. Imports nothing of Gyre, which its Python need not have."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import tensorflow as tf

_RECORD_BYTES = 1 << 18
_BUFFER_BYTES = 4 << 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    files = sorted(str(path) for path in options.folder.iterdir())
    records = tf.data.FixedLengthRecordDataset(files, _RECORD_BYTES, buffer_size=_BUFFER_BYTES)
    count, began = 0, 0.0
    while True:
        for _ in records:
            count += 1
        now = time.perf_counter()
        if began == 0:  # The first round is the page cache's.
            count, began = 0, now
        elif now - began >= options.seconds:
            break
    print(json.dumps({"bytes_per_second": count * _RECORD_BYTES / (now - began)}))


if __name__ == "__main__":
    main()
