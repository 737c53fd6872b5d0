"""Writing the files that the loader reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gyre.core import _core
from gyre.errors import InvalidArgumentError

_MOST_INTEGER = (1 << 63) - 1

Value = Any  # bytes, a number, or anything that NumPy converts to an array of numbers.


def write_tfrecords(
    path: str | os.PathLike[str],
    examples: Iterable[Mapping[str, Value]],
    *,
    compression: str | None = None,
    level: int = 6,
) -> None:
    """Writes one TFRecord file of tf.train.Examples; on failure an existing file stays as it was.

    A value that is `bytes` (or a bytearray or memoryview) becomes a BytesList, integers an Int64List, floats a
    FloatList (float32). A number that these cannot hold is an error. To store an array as raw elements, pass its
    `tobytes()`. compression: None, "gzip" or "zlib"; level: 1 (fast) to 12 (small).
    """
    records = [_core.encode_example([_feature(name, value) for name, value in one.items()]) for one in examples]
    _core.write_tfrecords(os.fspath(path), records, compression or "", level)


def _feature(name: str, value: Value) -> tuple[str, str, bytes]:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return name, "bytes", bytes(value)
    array = np.atleast_1d(np.asarray(value))
    if array.dtype.kind in "iub":
        if array.dtype.kind == "u" and array.size and array.max() > _MOST_INTEGER:
            raise _too_large(name, array.max())
        return name, "ints", array.astype("<i8").tobytes()
    if not isinstance(value, (np.ndarray, np.generic)):
        _check_integers(name, value)
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            narrow = array.astype("<f4")
        overflown = np.isinf(narrow) & np.isfinite(array)
        if overflown.any():
            raise InvalidArgumentError(f"feature {name!r}: {array[overflown][0]} is beyond the range of float32")
        return name, "floats", narrow.tobytes()
    raise InvalidArgumentError(f"feature {name!r} is neither bytes, nor integers, nor floats: {type(value).__name__}")


def _check_integers(name: str, value: Value) -> None:
    """NumPy makes objects, or floats, of Python's integers that fit into none of its types."""
    for number in np.asarray(value, dtype=object).reshape(-1):
        if isinstance(number, int) and not -_MOST_INTEGER - 1 <= number <= _MOST_INTEGER:
            raise _too_large(name, number)


def _too_large(name: str, number: int) -> InvalidArgumentError:
    return InvalidArgumentError(f"feature {name!r}: {number} is not an integer of 64 bits with a sign (Int64List)")
