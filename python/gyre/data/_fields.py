"""The parts of a sample, as users describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gyre.errors import InvalidArgumentError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_MOST_SIDE = 1 << 14
_MOST_OFFSET = 1 << 63


@dataclass(frozen=True)
class Image:
    """How each image is processed; see `image`."""

    size: tuple[int, int]
    augment: bool
    resize: int
    area: tuple[float, float]
    aspect: tuple[float, float]
    flip: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    layout: str
    reduced_decode: bool


@dataclass(frozen=True)
class Field:
    """One field of a batch, from a feature of a sample; made by `image`, `raw`, `floats` or `ints`.

    kind: what the feature holds: "bytes", "floats" or "ints".
    stored: the type of the elements within a byte string.
    dtype: their type in the batch.
    shape: of one sample; () is a single value.
    transform: "" or "log1p", which is log(1 + x).
    key: the feature's name; "" if it is the field's.
    offset: added to each integer.
    image: how an image is processed.
    """

    kind: str
    stored: str
    dtype: str
    shape: tuple[int, ...]
    transform: str = ""
    key: str = ""
    offset: int = 0
    image: Image | None = None


def raw(
    stored: str, shape: int | Sequence[int], *, dtype: str | None = None, transform: str = "", key: str = ""
) -> Field:
    """A byte string of elements in memory order, little-endian (as `tf.io.decode_raw` reads it).

    stored: "uint8", "int16", "int32", "int64", "float32" or "bfloat16". dtype: the type in the batch, by default
    `stored`; uint8, int16 and float32 can become "float32" or "bfloat16". transform: "log1p" computes log(1 + x). key:
    the feature's name, by default the field's.
    """
    return Field("bytes", stored, dtype or stored, _shape(shape), transform, key)


def floats(shape: int | Sequence[int] = (), *, dtype: str = "float32", transform: str = "", key: str = "") -> Field:
    """A FloatList, as "float32" or "bfloat16"."""
    return Field("floats", "float32", dtype, _shape(shape), transform, key)


def ints(shape: int | Sequence[int] = (), *, offset: int = 0, key: str = "") -> Field:
    """An Int64List, as "int64". `offset` is added to each: -1 makes labels that count from 1 (ImageNet's) count from
    0."""
    if not isinstance(offset, int) or not -_MOST_OFFSET <= offset < _MOST_OFFSET:
        raise InvalidArgumentError(f"offset={offset!r} is not an integer of 64 bits")
    return Field("ints", "int64", "int64", _shape(shape), "", key, offset)


def image(
    size: int | tuple[int, int] = 224,
    *,
    augment: bool,
    resize: int | None = None,
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
        RandomHorizontalFlip. The choice depends only on the loader's seed, the epoch and the sample. False resizes the
        shorter side to `resize` (default: 8/7 of the size, 256 for 224) and takes the centre crop.
    mean, std: (value / 255 - mean) / std, by channel. Not used for "uint8".
    dtype: "float32", "bfloat16" or "uint8".
    layout: "CHW" or "HWC".
    reduced_decode: decode a JPEG at 1/2, 1/4 or 1/8 of its size if the crop is at least that much larger than the
        result.
    key: the feature's name, by default the field's.

    Resizing is bilinear with antialiasing, as in Pillow; orientation tags are not applied.
    """
    height, width = (size, size) if isinstance(size, int) else size
    whole = Image(
        size=(_side("size", height), _side("size", width)),
        augment=augment,
        resize=_side("resize", round(max(height, width) * 8 / 7) if resize is None else resize),
        area=_pair("area", area),
        aspect=_pair("aspect", aspect),
        flip=float(flip),
        mean=_channels("mean", mean),
        std=_channels("std", std),
        layout=layout,
        reduced_decode=reduced_decode,
    )
    if layout not in ("CHW", "HWC"):
        raise InvalidArgumentError(f"layout={layout!r} is neither 'CHW' nor 'HWC'")
    shape = (3, height, width) if layout == "CHW" else (height, width, 3)
    return Field("bytes", "uint8", dtype, shape, "", key, 0, whole)


def as_tuple(name: str, field: Field) -> tuple[str, str, str, str, list[int], str, str, int, tuple[Any, ...] | None]:
    """What the extension module takes."""
    made = None
    if field.image is not None:
        it = field.image
        first = it.layout == "CHW"
        made = (*it.size, it.augment, it.resize, it.area, it.aspect, it.flip, it.reduced_decode, first, it.mean, it.std)
    shape = list(field.shape)
    return name, field.kind, field.stored, field.dtype, shape, field.transform, field.key, field.offset, made


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


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
