"""tf.data with AUTOTUNE: CosmoFlow's volumes as the public benchmark reads them. Needs only TensorFlow, and can run
in an environment of its own."""

from __future__ import annotations

import argparse
import glob
import importlib
import json
import os
import time
from typing import Any


def dataset(tf: Any, options: argparse.Namespace) -> Any:
    shape = (options.size, options.size, options.size, 4)

    def parse(record: Any) -> Any:
        parsed = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([], tf.string)})
        volume = tf.reshape(tf.io.decode_raw(parsed["x"], tf.int16), shape)
        return tf.math.log(tf.cast(volume, tf.float32) + 1.0) if options.log else volume

    files = tf.data.Dataset.from_tensor_slices(sorted(glob.glob(options.files))).shuffle(1024)
    records = files.interleave(
        lambda file: tf.data.TFRecordDataset(file, compression_type=options.compression),
        cycle_length=options.threads,
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    batches = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE).batch(options.batch, drop_remainder=True)
    return batches.prefetch(tf.data.AUTOTUNE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--compression", default="GZIP")
    parser.add_argument("--log", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    tf: Any = importlib.import_module("tensorflow")  # After its variables.

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    batches = dataset(tf, options)
    for _ in batches:  # Warms up, and lets AUTOTUNE tune itself.
        pass
    volumes = 0
    began = time.perf_counter()
    while time.perf_counter() - began < options.seconds:
        volumes += sum(options.batch for _ in batches)
    print(json.dumps({"per_second": volumes / (time.perf_counter() - began)}))


if __name__ == "__main__":
    main()
