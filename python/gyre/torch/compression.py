"""Fewer bytes on the way: tensors travel in a smaller type and come back in their own.

DistributedOptimizer leaves the built-in choices to the engine: gradients of float32 stay what they are, are narrowed
where they leave the host, and combined in float32; between ranks of one host nothing travels and nothing is rounded.
allreduce() and its relatives convert the tensor itself.
"""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """What a compressor offers; write your own by deriving from it (anything with these two methods works). The class
    itself is passed around: state, if there is any, is the class's. The ranks' tensors are added, or averaged, as they
    travel."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send, and what decompress() will need: of this tensor, in this step. Called once per gradient
        and step; of a parameter that has none on this rank, with zeros. In DistributedOptimizer the type and shape of
        what is sent are equal on all ranks and in all steps (else MismatchError, InvalidArgumentError); the values and
        the context may depend on the data."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        """The reduced tensor in its original shape and type, by the context that compress() gave on this rank."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:  # noqa: ARG004
        return tensor


class _CastCompressor(Compressor):
    """Floating-point tensors that are wider travel as `wire_type`; all others as they are."""

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
    """float32 and float64 travel as float16: half the bytes, 11 bits of precision, values up to 65504."""

    wire_type = torch.float16

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return FP16Compressor._cast(tensor)


class BF16Compressor(_CastCompressor):
    """float32 and float64 travel as bfloat16: half the bytes, 8 bits of precision, the range of float32."""

    wire_type = torch.bfloat16

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return BF16Compressor._cast(tensor)


def wire_format_of(compression: type[Compressor]) -> str | None:
    """The engine's name (gyre/collectives/data_type.h) for a built-in choice; None for a class of somebody's own."""
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
