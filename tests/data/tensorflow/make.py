"""Writes the files {plain,gzip,zlib}.tfrecord of this folder, with TensorFlow 2.x: python make.py. And reads what
gyre.data has written: python make.py FILE..., one line of JSON for each record. ours.jsonl is what it has printed for
ours.tfrecord, ours.tfrecord.gz and ours.tfrecord.zlib, which tests/python/tensorflow_files_test.py has written:
python make.py ours.tfrecord*; so the tests hold our writer to TensorFlow's reader without TensorFlow."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import tensorflow as tf

HERE = Path(__file__).parent
RECORDS = [
    {"raw": [bytes(range(256))], "floats": [0.1, -2.5, 3e38], "ints": [0, -1, 2**63 - 1, -(2**63)]},
    {"raw": [bytes(256)], "floats": [1e-45, 0.0, -0.0], "ints": [127, 128, 300, -300]},
    {"raw": [b"\x1f\x8b" * 128], "floats": [float("inf"), 1 / 3, 7.0], "ints": [1, 2, 3, 4]},
]


def example(record: dict[str, list]) -> bytes:
    feature = {
        "raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=record["raw"])),
        "floats": tf.train.Feature(float_list=tf.train.FloatList(value=record["floats"])),
        "ints": tf.train.Feature(int64_list=tf.train.Int64List(value=record["ints"])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def write() -> None:
    for name, compression in (("plain", ""), ("gzip", "GZIP"), ("zlib", "ZLIB")):
        with tf.io.TFRecordWriter(str(HERE / f"{name}.tfrecord"), tf.io.TFRecordOptions(compression)) as writer:
            for record in RECORDS:
                writer.write(example(record))


def read(path: str) -> None:
    compression = "GZIP" if path.endswith("gz") else "ZLIB" if path.endswith("zlib") else ""
    for record in tf.data.TFRecordDataset(path, compression_type=compression):
        parsed = tf.train.Example.FromString(record.numpy())
        values = {}
        for name, feature in sorted(parsed.features.feature.items()):
            kind = feature.WhichOneof("kind")
            found = list(getattr(feature, kind).value) if kind else []
            values[name] = [base64.b64encode(one).decode() if isinstance(one, bytes) else one for one in found]
        print(json.dumps(values))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        read(argument)
    if len(sys.argv) == 1:
        write()
