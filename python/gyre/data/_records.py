"""Writing the files that the loader reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gyre.core import _core
from gyre.errors import InvalidArgumentError

Value = Any  # bytes, a number, or anything that NumPy converts to an array of numbers.


def write_tfrecords(
    path: str | os.PathLike[str],
    examples: Iterable[Mapping[str, Value]],
    *,
    compression: str | None = None,
    level: int = 6,
) -> None:
    """Writes one TFRecord file of tf.train.Examples; on failure an existing file stays as it was.

    A value that is `bytes` becomes a BytesList, integers an Int64List, floats a FloatList (float32). To store an array
    as raw elements, pass its `tobytes()`. compression: None, "gzip" or "zlib"; level: 1 (fast) to 12 (small).
    """
    records = [_core.encode_example([_feature(name, value) for name, value in one.items()]) for one in examples]
    _core.write_tfrecords(os.fspath(path), records, compression or "", level)


def _feature(name: str, value: Value) -> tuple[str, str, bytes]:
    if isinstance(value, bytes):
        return name, "bytes", value
    array = np.atleast_1d(np.asarray(value))
    if array.dtype.kind in "iub":
        return name, "ints", array.astype("<i8").tobytes()
    if array.dtype.kind == "f":
        return name, "floats", array.astype("<f4").tobytes()
    raise InvalidArgumentError(f"feature {name!r} is neither bytes, nor integers, nor floats: {type(value).__name__}")
