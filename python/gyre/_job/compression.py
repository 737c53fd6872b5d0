"""Fewer bytes to send: tensors of torch, TensorFlow and Keras are sent in a smaller type and returned in their own.

A DistributedOptimizer leaves the built-in choices to the engine: float32 gradients keep their type, are narrowed when
they leave the host, and are combined in float32; between ranks of one host nothing is sent and nothing is rounded.
allreduce() and the other operations convert the tensor itself.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_FLOATING_POINT = ("float64", "float32", "bfloat16", "float16")


class Compressor:
    """The interface of a compressor; write your own by deriving from it (anything with these two methods works). The
    class itself is passed around, so state, if any, belongs to the class. The ranks' tensors are added, or averaged,
    in compressed form."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and the context that decompress() will need for this tensor in this step. In
        DistributedOptimizer called once per gradient and step; by gyre.torch with zeros for a parameter that has no
        gradient on this rank. The compressed type and shape must be equal on all ranks and in all steps (else
        MismatchError, InvalidArgumentError); the values and the context can depend on the data."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The reduced tensor in its original shape and type, using the context that compress() returned on this
        rank."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors are sent unchanged."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:  # noqa: ARG004
        return tensor


class FP16Compressor(Compressor):
    """float32 and float64 are sent as float16: half the bytes, 11 bits of precision, values up to 65504."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _narrowed(tensor, "float16")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else _cast(tensor, ctx)


class BF16Compressor(FP16Compressor):
    """float32 and float64 are sent as bfloat16: half the bytes, 8 bits of precision, the range of float32."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _narrowed(tensor, "bfloat16")


def _narrowed(tensor: Any, wire: str) -> tuple[Any, Any]:
    own = type_name(tensor)
    return (_cast(tensor, wire), own) if own in _FLOATING_POINT[:2] else (tensor, None)


def type_name(tensor: Any) -> str:
    """ "float32" for TensorFlow's and torch's."""
    return str(getattr(tensor.dtype, "name", None) or str(tensor.dtype).removeprefix("torch."))


def _cast(tensor: Any, name: str) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return tensor.to(getattr(torch, name))
    return importlib.import_module("tensorflow").cast(tensor, name)


def wire_format_of(compression: type[Compressor]) -> str | None:
    """The engine's name (gyre/collectives/data_type.h) for a built-in choice; None for a custom class."""
    built_in: dict[type[Compressor], str] = {
        NoneCompressor: "native",
        FP16Compressor: "float16",
        BF16Compressor: "bfloat16",
    }
    return built_in.get(compression)


class Compression:
    """The choices for the `compression` argument."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
