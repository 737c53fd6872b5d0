"""Plain Python data (with arrays in it) as text and back, without pickle: received data is never executed.

Allowed: None, bool, int, float, complex, str, bytes, list, tuple, set, dict, NumPy arrays (not of objects), and what an
interface adds (torch's tensors). NumPy numbers arrive as Python numbers. The text is JSON; everything that JSON cannot
represent exactly is a two-element list [tag, value].
"""

from __future__ import annotations

import base64
import json
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy

from gyre.errors import CorruptDataError, InvalidArgumentError

MAX_TEXT_BYTES = 1 << 28
_MAX_DEPTH = 100
_ARRAY_KINDS = frozenset("biufcSUMm")  # NumPy types: all but objects and records.


class Additions(Protocol):
    """What an interface adds: types of its framework."""

    def encode(self, value: object, place: str, tensors: list[Any]) -> Any:
        """[tag, value], or None for a value that it does not know. A tensor's memory is appended to `tensors`."""

    def decode(self, tag: str, content: Any, tensors: list[Any]) -> Any:
        """The value. KeyError for a tag that it does not know."""


class _Nothing:
    def encode(self, value: object, place: str, tensors: list[Any]) -> Any:
        del value, place, tensors

    def decode(self, tag: str, content: Any, tensors: list[Any]) -> Any:
        del content, tensors
        raise KeyError(tag)


NOTHING: Additions = _Nothing()


@dataclass
class Encoded:
    """`text` has the place of each of `tensors`: arrays of bytes, and tensors of a framework."""

    text: bytes = b""
    tensors: list[Any] = field(default_factory=list)


def encode(value: object, what: str, additions: Additions = NOTHING) -> Encoded:
    """InvalidArgumentError gives the location of anything that is not plain data. `what` starts the message."""
    encoded = Encoded()
    tree = _Encoder(encoded.tensors, additions).encode(value, what, 0)
    encoded.text = json.dumps(tree, allow_nan=False, separators=(",", ":")).encode()
    if len(encoded.text) > MAX_TEXT_BYTES:
        raise InvalidArgumentError(
            f"{what}: {len(encoded.text)} bytes of data besides tensors; {MAX_TEXT_BYTES} are allowed"
        )
    return encoded


class _Encoder:
    """Appends the memory of what it encodes to `tensors`."""

    def __init__(self, tensors: list[Any], additions: Additions) -> None:
        self._tensors = tensors
        self._additions = additions

    def encode(self, value: object, place: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise InvalidArgumentError(f"{place}: nested more than {_MAX_DEPTH} levels deep")
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, numpy.bool_):
            return bool(value)
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, numbers.Real):
            return ["float", float(value).hex()]
        if isinstance(value, numpy.ndarray):
            return ["array", _encode_array(value, place, self._tensors)]
        added = self._additions.encode(value, place, self._tensors)
        if added is not None:
            return added
        if isinstance(value, complex):
            return ["complex", [value.real.hex(), value.imag.hex()]]
        if isinstance(value, bytes):
            return ["bytes", base64.b64encode(value).decode()]
        if isinstance(value, dict):
            return ["dict", [self._encode_pair(key, item, place, depth) for key, item in value.items()]]
        return self._encode_items(value, place, depth)

    def _encode_items(self, value: Any, place: str, depth: int) -> Any:
        tag = _TAGS.get(type(value))
        if tag is None:
            raise InvalidArgumentError(
                f"{place}: a value of type {type(value).__module__}.{type(value).__qualname__} cannot be sent; "
                "only None, bool, numbers, str, bytes, list, tuple, set, dict, arrays and tensors can"
            )
        return [tag, [self.encode(item, f"{place}[{i}]", depth + 1) for i, item in enumerate(value)]]

    def _encode_pair(self, key: object, value: object, place: str, depth: int) -> list[Any]:
        key_tree = self.encode(key, f"a key of {place}", depth + 1)
        return [key_tree, self.encode(value, f"{place}[{key!r}]", depth + 1)]


def _encode_array(array: numpy.ndarray[Any, Any], place: str, tensors: list[Any]) -> list[Any]:
    """As the bytes of its elements in C order, because numpy has more types than can be sent as tensors."""
    if array.dtype.kind not in _ARRAY_KINDS:
        raise InvalidArgumentError(f"{place}: an array of type {array.dtype} cannot be sent")
    tensors.append(numpy.frombuffer(bytearray(array.tobytes()), numpy.uint8))
    return [array.dtype.str, list(array.shape)]


def _decode_array(content: Any, tensors: list[Any]) -> numpy.ndarray[Any, Any]:
    name, shape = content
    dtype = numpy.dtype(str(name))
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"arrays of type {dtype} are not sent")
    lengths = tuple(int(n) for n in shape)
    tensors.append(numpy.empty(math.prod(lengths) * dtype.itemsize, numpy.uint8))
    # The same memory: it is filled through the bytes.
    return numpy.ndarray(lengths, dtype, tensors[-1].data)


def decode(text: bytes, additions: Additions = NOTHING) -> tuple[Any, list[Any]]:
    """The value, with new arrays and tensors of the right types and shapes in it, and their memory in the order in
    which encode() found it; the caller fills it. CorruptDataError for anything that encode() does not write."""
    tensors: list[Any] = []
    try:
        value = _decode(json.loads(text), tensors, additions)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, RuntimeError) as error:
        raise CorruptDataError(f"the description of the data that the root sent is invalid: {error}") from error
    return value, tensors


def _decode(tree: Any, tensors: list[Any], additions: Additions) -> Any:
    if tree is None or isinstance(tree, (bool, int, str)):
        return tree
    tag, content = tree
    if tag in _SEQUENCES:
        return _SEQUENCES[tag]([_decode(item, tensors, additions) for item in content])
    if tag == "dict":
        return {_decode(key, tensors, additions): _decode(item, tensors, additions) for key, item in content}
    if tag == "array":
        return _decode_array(content, tensors)
    if tag in _SCALARS:
        return _SCALARS[tag](content)
    return additions.decode(tag, content, tensors)


_TAGS: dict[type[Any], str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_SCALARS: dict[str, Callable[[Any], Any]] = {
    "float": float.fromhex,
    "complex": lambda parts: complex(float.fromhex(parts[0]), float.fromhex(parts[1])),
    "bytes": lambda text: base64.b64decode(text, validate=True),
}
