"""Batches of messages between devices."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


def serve_torch_batches(ours: type[Any]) -> None:
    """Makes torch.distributed.batch_isend_irecv() pass a batch of a device's messages on as one, so that no order among
    them can make ranks wait for each other: for groups of the class `ours` torch would pass them one by one."""
    module = dist.distributed_c10d
    original = module.batch_isend_irecv
    if getattr(original, "serves_gyre", False):
        return

    def serving(p2p_op_list: list[dist.P2POp]) -> list[dist.Work]:
        first = p2p_op_list[0] if p2p_op_list else None
        group = (first.group or dist.group.WORLD) if isinstance(first, dist.P2POp) else None
        if first is None or not isinstance(group, ours) or group.other_devices.group_for(first.tensor.device) is None:
            return original(p2p_op_list)
        group._start_coalescing(first.tensor.device)
        try:
            original(p2p_op_list)
        finally:
            work = group._end_coalescing(first.tensor.device)
        return [work]

    serving.__doc__ = original.__doc__
    serving.serves_gyre = True  # type: ignore[attr-defined]
    module.batch_isend_irecv = serving
    dist.batch_isend_irecv = serving
