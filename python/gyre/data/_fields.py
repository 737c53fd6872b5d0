"""What a sample is made of, as users describe it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """One field of a batch, from a feature of a tf.train.Example; made by `raw`, `floats` or `ints`.

    kind: what the feature holds: "bytes", "floats" or "ints".
    stored: the type of the elements within a byte string.
    dtype: their type in the batch.
    shape: of one sample; () is a single value.
    transform: "" or "log1p", which is log(1 + x).
    """

    kind: str
    stored: str
    dtype: str
    shape: tuple[int, ...]
    transform: str = ""


def raw(stored: str, shape: int | Sequence[int], *, dtype: str | None = None, transform: str = "") -> Field:
    """A byte string that holds the elements as they lie, little-endian (what `tf.io.decode_raw` reads).

    stored: "uint8", "int16", "int32", "int64", "float32" or "bfloat16". dtype: the type in the batch, by default
    `stored`; uint8, int16 and float32 can become "float32" or "bfloat16". transform: "log1p" takes log(1 + x) on the
    way.
    """
    return Field("bytes", stored, dtype or stored, _shape(shape), transform)


def floats(shape: int | Sequence[int] = (), *, dtype: str = "float32", transform: str = "") -> Field:
    """A FloatList, as "float32" or "bfloat16"."""
    return Field("floats", "float32", dtype, _shape(shape), transform)


def ints(shape: int | Sequence[int] = ()) -> Field:
    """An Int64List, as "int64"."""
    return Field("ints", "int64", "int64", _shape(shape))


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
