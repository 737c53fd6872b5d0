"""torch's types among plain data: tensors, torch.dtype, torch.Size. See gyre._job.plain_data."""

from __future__ import annotations

from typing import Any

import torch

from gyre._job import plain_data
from gyre._job.plain_data import MAX_TEXT_BYTES, Encoded
from gyre._tensors.memory import DATA_TYPE_NUMBERS, check_tensor

__all__ = ["MAX_TEXT_BYTES", "Encoded", "decode", "encode"]

_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in DATA_TYPE_NUMBERS}


class _TorchTypes:
    def encode(self, value: object, place: str, tensors: list[Any]) -> Any:
        if isinstance(value, torch.Tensor):
            check_tensor(value, place)
            tensors.append(value)
            return ["tensor", [str(value.dtype).removeprefix("torch."), list(value.shape)]]
        if isinstance(value, torch.dtype):
            return ["dtype", str(value).removeprefix("torch.")]
        if isinstance(value, torch.Size):
            return ["size", list(value)]
        return None

    def decode(self, tag: str, content: Any, tensors: list[Any]) -> Any:
        if tag == "tensor":
            dtype, shape = content
            tensors.append(torch.empty(tuple(int(n) for n in shape), dtype=_DTYPES[dtype]))
            return tensors[-1]
        if tag == "size":
            return torch.Size(int(n) for n in content)
        if tag == "dtype":
            return _DTYPES[content]
        raise KeyError(tag)


def encode(value: object, what: str) -> Encoded:
    """plain_data.encode() with torch's types; all memory as tensors."""
    encoded = plain_data.encode(value, what, _TorchTypes())
    encoded.tensors = [_as_tensor(memory) for memory in encoded.tensors]
    return encoded


def decode(text: bytes) -> tuple[Any, list[torch.Tensor]]:
    """plain_data.decode() with torch's types; all memory as tensors."""
    value, tensors = plain_data.decode(text, _TorchTypes())
    return value, [_as_tensor(memory) for memory in tensors]


def _as_tensor(memory: Any) -> torch.Tensor:
    return memory if isinstance(memory, torch.Tensor) else torch.from_numpy(memory)
