"""Fewer bytes to send: tensors are sent in a smaller type and returned in their own.

DistributedOptimizer leaves the built-in choices to the engine: float32 gradients keep their type, are narrowed when
they leave the host, and are combined in float32; between ranks of one host nothing is sent and nothing is rounded.
allreduce() and the other operations convert the tensor itself.
"""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """The interface of a compressor; write your own by deriving from it (anything with these two methods works). The
    class itself is passed around, so state, if any, belongs to the class. The ranks' tensors are added, or averaged,
    in compressed form."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send, and the context that decompress() will need for this tensor in this step. Called once
        per gradient and step; with zeros for a parameter that has no gradient on this rank. In DistributedOptimizer
        the compressed type and shape must be equal on all ranks and in all steps (else MismatchError,
        InvalidArgumentError); the values and the context can depend on the data."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        """The reduced tensor in its original shape and type, using the context that compress() returned on this
        rank."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors are sent unchanged."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:  # noqa: ARG004
        return tensor


class _CastCompressor(Compressor):
    """Wider floating-point tensors are sent as `wire_type`; all others unchanged."""

    wire_type: torch.dtype

    @classmethod
    def _cast(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        if tensor.dtype.is_floating_point and tensor.element_size() > cls.wire_type.itemsize:
            return tensor.to(cls.wire_type), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor if context is None else tensor.to(context)


class FP16Compressor(_CastCompressor):
    """float32 and float64 are sent as float16: half the bytes, 11 bits of precision, values up to 65504."""

    wire_type = torch.float16

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return FP16Compressor._cast(tensor)


class BF16Compressor(_CastCompressor):
    """float32 and float64 are sent as bfloat16: half the bytes, 8 bits of precision, the range of float32."""

    wire_type = torch.bfloat16

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return BF16Compressor._cast(tensor)


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
