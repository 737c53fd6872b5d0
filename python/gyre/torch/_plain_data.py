"""torch's types among plain data: tensors, torch.dtype, torch.Size. See gyre._job.plain_data."""

from __future__ import annotations

from typing import Any

import torch

from gyre._devices.staging import is_present
from gyre._job import plain_data
from gyre._job.plain_data import MAX_TEXT_BYTES, Encoded
from gyre._tensors.memory import DATA_TYPE_NUMBERS
from gyre.torch._staged import check_tensor

__all__ = ["MAX_TEXT_BYTES", "Encoded", "decode", "encode"]

_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in DATA_TYPE_NUMBERS}


class _TorchTypes:
    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device

    def _place_of(self, device_type: str) -> torch.device:
        """Where a tensor goes that is on such a device at the sender."""
        if self._device is not None and self._device.type == device_type:
            return self._device
        return torch.device(device_type if is_present(device_type) else "cpu")

    def encode(self, value: object, place: str, tensors: list[Any]) -> Any:
        if isinstance(value, torch.Tensor):
            check_tensor(value, place)
            tensors.append(value)
            elsewhere = [] if value.is_cpu else [value.device.type]
            return ["tensor", [str(value.dtype).removeprefix("torch."), list(value.shape), *elsewhere]]
        if isinstance(value, torch.dtype):
            return ["dtype", str(value).removeprefix("torch.")]
        if isinstance(value, torch.Size):
            return ["size", list(value)]
        return None

    def decode(self, tag: str, content: Any, tensors: list[Any]) -> Any:
        if tag == "tensor":
            dtype, shape, *elsewhere = content
            device = self._place_of(str(elsewhere[0])) if elsewhere else torch.device("cpu")
            tensors.append(torch.empty(tuple(int(n) for n in shape), dtype=_DTYPES[dtype], device=device))
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


def decode(text: bytes, device: torch.device | None = None) -> tuple[Any, list[torch.Tensor]]:
    """plain_data.decode() with torch's types; all memory as tensors. `device`: in place of the current one of its
    type."""
    value, tensors = plain_data.decode(text, _TorchTypes(device))
    return value, [_as_tensor(memory) for memory in tensors]


def _as_tensor(memory: Any) -> torch.Tensor:
    return memory if isinstance(memory, torch.Tensor) else torch.from_numpy(memory)
