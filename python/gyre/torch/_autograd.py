"""What autograd does not tell its hooks."""

from __future__ import annotations

import sys
from types import FrameType


def inside_another_backward() -> bool:
    """Whether this backward() was called by another one's node, as reentrant checkpointing does."""
    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth += frame.f_code.co_name == "_engine_run_backward"  # torch.autograd.graph's.
        frame = frame.f_back
    return depth > 1
