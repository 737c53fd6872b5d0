"""What autograd does not tell its hooks."""

from __future__ import annotations

import sys
from types import FrameType

from gyre._torch_private import backward_code


def inside_another_backward() -> bool:
    """Whether this backward() was called by another one's node, as reentrant checkpointing does."""
    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth += frame.f_code is backward_code()
        frame = frame.f_back
    return depth > 1
