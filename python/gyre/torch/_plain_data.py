"""Plain Python data (with tensors in it) as text and back, without pickle: received data is never executed.

Allowed: None, bool, int, float, complex, str, bytes, list, tuple, set, dict, torch.Size, torch.dtype, NumPy arrays
(not of objects) and tensors. NumPy numbers arrive as Python numbers. The text is JSON; everything that JSON cannot
represent exactly is a two-element list [tag, value].
"""

from __future__ import annotations

import base64
import json
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from gyre._tensors.memory import DATA_TYPE_NUMBERS, check_tensor
from gyre.errors import CorruptDataError, InvalidArgumentError

MAX_TEXT_BYTES = 1 << 28
_MAX_DEPTH = 100
_ARRAY_KINDS = frozenset("biufcSUMm")  # NumPy types: all but objects and records.
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in DATA_TYPE_NUMBERS}


@dataclass
class Encoded:
    """`text` has the place of each of `tensors`."""

    text: bytes = b""
    tensors: list[torch.Tensor] = field(default_factory=list)


def encode(value: object, what: str) -> Encoded:
    """InvalidArgumentError gives the location of anything that is not plain data. `what` starts the message."""
    encoded = Encoded()
    tree = _encode(value, what, encoded.tensors, 0)
    encoded.text = json.dumps(tree, allow_nan=False, separators=(",", ":")).encode()
    if len(encoded.text) > MAX_TEXT_BYTES:
        raise InvalidArgumentError(
            f"{what}: {len(encoded.text)} bytes of data besides tensors; {MAX_TEXT_BYTES} are allowed"
        )
    return encoded


def _encode(value: object, place: str, tensors: list[torch.Tensor], depth: int) -> Any:
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
        return _encode_array(value, place, tensors)
    if isinstance(value, torch.Tensor):
        return ["tensor", _encode_tensor(value, place, tensors)]
    if isinstance(value, torch.dtype):
        return ["dtype", str(value).removeprefix("torch.")]
    if isinstance(value, complex):
        return ["complex", [value.real.hex(), value.imag.hex()]]
    if isinstance(value, bytes):
        return ["bytes", base64.b64encode(value).decode()]
    if isinstance(value, dict):
        return ["dict", [_encode_pair(k, v, place, tensors, depth) for k, v in value.items()]]
    tag = _TAGS.get(type(value))
    if tag is None:
        raise InvalidArgumentError(
            f"{place}: a value of type {type(value).__module__}.{type(value).__qualname__} cannot be sent; "
            "only None, bool, numbers, str, bytes, list, tuple, set, dict, arrays and tensors can"
        )
    items: Any = value
    return [tag, [_encode(item, f"{place}[{i}]", tensors, depth + 1) for i, item in enumerate(items)]]


def _encode_pair(key: object, value: object, place: str, tensors: list[torch.Tensor], depth: int) -> list[Any]:
    key_tree = _encode(key, f"a key of {place}", tensors, depth + 1)
    return [key_tree, _encode(value, f"{place}[{key!r}]", tensors, depth + 1)]


def _encode_array(array: numpy.ndarray[Any, Any], place: str, tensors: list[torch.Tensor]) -> list[Any]:
    """As the bytes of its elements in C order, because numpy has more types than can be sent as tensors."""
    if array.dtype.kind not in _ARRAY_KINDS:
        raise InvalidArgumentError(f"{place}: an array of type {array.dtype} cannot be sent")
    content = bytearray(array.tobytes())
    tensors.append(torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8))
    return ["array", [array.dtype.str, list(array.shape)]]


def _decode_array(content: Any, tensors: list[torch.Tensor]) -> numpy.ndarray[Any, Any]:
    name, shape = content
    dtype = numpy.dtype(str(name))
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"arrays of type {dtype} are not sent")
    lengths = tuple(int(n) for n in shape)
    tensors.append(torch.empty(math.prod(lengths) * dtype.itemsize, dtype=torch.uint8))
    # The same memory: it is filled through the tensor.
    return numpy.ndarray(lengths, dtype, tensors[-1].numpy().data)


def _encode_tensor(tensor: torch.Tensor, place: str, tensors: list[torch.Tensor]) -> list[Any]:
    check_tensor(tensor, place)
    tensors.append(tensor)
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]


def decode(text: bytes) -> tuple[Any, list[torch.Tensor]]:
    """The value, with new tensors of the right types and shapes in it, and these tensors in the order in which
    encode() found them; the caller fills them. CorruptDataError for anything that encode() does not write."""
    tensors: list[torch.Tensor] = []
    try:
        value = _decode(json.loads(text), tensors)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, RuntimeError) as error:
        raise CorruptDataError(f"the description of the data that the root sent is invalid: {error}") from error
    return value, tensors


def _decode(tree: Any, tensors: list[torch.Tensor]) -> Any:
    if tree is None or isinstance(tree, (bool, int, str)):
        return tree
    tag, content = tree
    if tag in _SEQUENCES:
        return _SEQUENCES[tag]([_decode(item, tensors) for item in content])
    if tag == "dict":
        return {_decode(key, tensors): _decode(item, tensors) for key, item in content}
    if tag == "tensor":
        dtype, shape = content
        tensors.append(torch.empty(tuple(int(n) for n in shape), dtype=_DTYPES[dtype]))
        return tensors[-1]
    if tag == "array":
        return _decode_array(content, tensors)
    return _SCALARS[tag](content)


_TAGS: dict[type[Any], str] = {list: "list", tuple: "tuple", torch.Size: "size", set: "set", frozenset: "frozenset"}
_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "size": torch.Size,
    "set": set,
    "frozenset": frozenset,
}
_SCALARS: dict[str, Callable[[Any], Any]] = {
    "float": float.fromhex,
    "complex": lambda parts: complex(float.fromhex(parts[0]), float.fromhex(parts[1])),
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "dtype": lambda name: _DTYPES[name],
}
