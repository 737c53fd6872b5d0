"""The parts of a sample, as users describe them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gyre.errors import InvalidArgumentError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_MOST_SIDE = 1 << 14
# Of integers in a batch: the least and the most.
_RANGES = {"uint8": (0, 255), **{f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64)}}


@dataclass(frozen=True)
class Image:
    """How each image is processed; see `image`."""

    size: tuple[int, int]
    augment: bool
    resize: int | None
    area: tuple[float, float]
    aspect: tuple[float, float]
    flip: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    layout: str
    reduced_decode: bool
    resample: str = "bilinear"


@dataclass(frozen=True)
class Field:
    """One field of a batch, from a feature of a sample; made by `image`, `raw`, `floats`, `ints` or `length`.

    kind: what the feature holds: "bytes", "floats" or "ints".
    stored: the type of the elements within a byte string.
    dtype: their type in the batch.
    shape: of one sample; () is a single value.
    transform: "" or "log1p", which is log(1 + x).
    key: the feature's name; "" if it is the field's.
    offset: added to each integer.
    image: how an image is processed.
    scale: each value is multiplied by it, before the transform.
    pad: fills up a feature of fewer values; None: that is an error.
    default: all values of a sample without the feature; None: that is an error.
    length: the field is the number of the feature's values.
    """

    kind: str
    stored: str
    dtype: str
    shape: tuple[int, ...]
    transform: str = ""
    key: str = ""
    offset: int = 0
    image: Image | None = None
    scale: float = 1.0
    pad: float | None = None
    default: float | None = None
    length: bool = False


def raw(
    stored: str,
    shape: int | Sequence[int],
    *,
    dtype: str | None = None,
    transform: str = "",
    scale: float = 1.0,
    pad: float | None = None,
    default: float | None = None,
    key: str = "",
) -> Field:
    """A byte string of elements in memory order, little-endian (as `tf.io.decode_raw` reads it).

    stored: "uint8", "int16", "int32", "int64", "float32", "bfloat16" or "float16". dtype: the type in the batch, by
    default `stored`; all but int64 can become "float32", "bfloat16" or "float16". scale: for those, each value is
    multiplied by it (1 / 255 for pixels). transform: "log1p" computes log(1 + x). pad: a shorter string is filled up
    with this value; without it, its length must be that of the shape. default: the values of a sample without the
    feature, which is an error otherwise. key: the feature's name, by default the field's.
    """
    return _numbers("bytes", stored, dtype or stored, shape, transform, key, 0, scale, pad, default)


def floats(
    shape: int | Sequence[int] = (),
    *,
    dtype: str = "float32",
    transform: str = "",
    scale: float = 1.0,
    pad: float | None = None,
    default: float | None = None,
    key: str = "",
) -> Field:
    """A FloatList, as "float32", "bfloat16" or "float16". pad: lists of fewer values are filled up with this one;
    default: the values of a sample without the feature. Without them both are errors."""
    return _numbers("floats", "float32", dtype, shape, transform, key, 0, scale, pad, default)


def ints(
    shape: int | Sequence[int] = (),
    *,
    offset: int = 0,
    pad: int | None = None,
    default: int | None = None,
    key: str = "",
) -> Field:
    """An Int64List, as "int64". `offset` is added to each: -1 makes labels that count from 1 (ImageNet's) count from
    0. pad: lists of fewer values are filled up with this one; default: the values of a sample without the feature.
    Without them both are errors."""
    _check_integer("offset", offset, *_RANGES["int64"])
    return _numbers("ints", "int64", "int64", shape, "", key, offset, 1.0, pad, default)


def length(key: str) -> Field:
    """How many values the feature `key` has (bytes of a byte string), as "int64"; 0 of a sample without it. For
    features that another field fills up (`pad=`)."""
    return Field("ints", "int64", "int64", (), "", key, length=True)


def image(
    size: int | tuple[int, int] = 224,
    *,
    augment: bool,
    resize: int | None = None,
    resample: str = "bilinear",
    area: tuple[float, float] = (0.08, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
    flip: float = 0.5,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    dtype: str = "float32",
    layout: str = "CHW",
    reduced_decode: bool = True,
    key: str = "",
) -> Field:
    """A JPEG or PNG (detected from the content), as RGB values of `size` (height and width, or one number for both).

    augment: True takes a random crop with `area` (fraction of the image) and `aspect` (width by height) in these
        ranges, and flips it horizontally with probability `flip`: torchvision's RandomResizedCrop and
        RandomHorizontalFlip. The choice depends only on the loader's seed, the epoch and the sample. False takes the
        centre crop.
    resize: with augment=False, the shorter side is resized to so many pixels before (ImageNet: 256 for a size of 224).
        None: the image is not resized; one that is smaller than `size` is an error.
    resample: "bilinear", or "nearest" for masks, whose values are labels: no value is mixed with others.
    mean, std: (value / 255 - mean) / std, by channel. Not used for "uint8".
    dtype: "float32", "bfloat16", "float16" or "uint8".
    layout: "CHW" or "HWC".
    reduced_decode: decode a JPEG at 1/2, 1/4 or 1/8 of its size if the crop is at least that much larger than the
        result.
    key: the feature's name, by default the field's.

    Resizing is that of Pillow (bilinear with antialiasing, or nearest); orientation tags are not applied.
    """
    height, width = (size, size) if isinstance(size, int) else size
    whole = Image(
        size=(_side("size", height), _side("size", width)),
        augment=augment,
        resize=None if resize is None else _side("resize", resize),
        area=_pair("area", area),
        aspect=_pair("aspect", aspect),
        flip=float(flip),
        mean=_channels("mean", mean),
        std=_channels("std", std),
        layout=layout,
        reduced_decode=reduced_decode,
        resample=resample,
    )
    if layout not in ("CHW", "HWC"):
        raise InvalidArgumentError(f"layout={layout!r} is neither 'CHW' nor 'HWC'")
    shape = (3, height, width) if layout == "CHW" else (height, width, 3)
    return Field("bytes", "uint8", dtype, shape, "", key, 0, whole)


def as_tuple(name: str, field: Field) -> tuple[Any, ...]:
    """What the extension module takes."""
    made: tuple[Any, ...] | None = None
    if field.image is not None:
        it = field.image
        first = it.layout == "CHW"
        resize = it.resize or 0
        made = (*it.size, it.augment, resize, it.area, it.aspect, it.flip, it.reduced_decode, first, it.mean, it.std)
        made = (*made, it.resample)
    shape = list(field.shape)
    head = name, field.kind, field.stored, field.dtype, shape, field.transform, field.key, field.offset, made
    return *head, field.scale, _fill(field, field.pad), _fill(field, field.default), field.length


def _numbers(
    kind: str,
    stored: str,
    dtype: str,
    shape: int | Sequence[int],
    transform: str,
    key: str,
    offset: int,
    scale: float,
    pad: float | None,
    default: float | None,
) -> Field:
    for name, value in (("pad", pad), ("default", default)):
        if value is not None and dtype in _RANGES:
            _check_integer(name, value, *_RANGES[dtype])
    if not math.isfinite(scale):
        raise InvalidArgumentError(f"scale={scale!r} is not a finite number")
    return Field(kind, stored, dtype, _shape(shape), transform, key, offset, None, float(scale), pad, default)


def _fill(field: Field, value: float | None) -> tuple[int, float] | None:
    if value is None:
        return None
    return (int(value), 0.0) if field.dtype in _RANGES else (0, float(value))


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _check_integer(name: str, value: float, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgumentError(f"{name}={value!r} is not an integer from {least} to {most}")


def _side(name: str, pixels: int) -> int:
    if isinstance(pixels, bool) or not isinstance(pixels, int) or not 1 <= pixels <= _MOST_SIDE:
        raise InvalidArgumentError(f"{name}: {pixels!r} is not a number of pixels from 1 to {_MOST_SIDE}")
    return pixels


def _pair(name: str, values: tuple[float, float]) -> tuple[float, float]:
    if len(values) != 2:
        raise InvalidArgumentError(f"{name}={values!r} is not the least and the most")
    return float(values[0]), float(values[1])


def _channels(name: str, values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) != 3:
        raise InvalidArgumentError(f"{name}={values!r} are not three numbers, for red, green and blue")
    return float(values[0]), float(values[1]), float(values[2])
