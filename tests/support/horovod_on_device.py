"""Ranks of gyre.torch on a device: see sim_device."""

from __future__ import annotations

import gyre.torch as hvd
import sim_device
import torch


def own_device() -> torch.device:
    """Ranks differ, and their current device stays the first one."""
    return sim_device.device(hvd.rank())


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """This rank's, in host memory. The order of a sum shows in its bits."""
    generator = torch.Generator().manual_seed(100 * seed + hvd.rank())
    return (torch.rand(shape, generator=generator) * 5).to(dtype)


def leave() -> None:
    """Together: rank 0 keeps the store through which the stand-in communicates."""
    hvd.barrier()
    hvd.shutdown()
