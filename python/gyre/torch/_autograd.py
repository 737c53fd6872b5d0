"""Information about autograd that its hooks do not get."""

from __future__ import annotations

import sys
from types import FrameType

from gyre._torch_private import backward_code


def inside_another_backward() -> bool:
    """Whether this backward() was called by a node of another one, as in reentrant checkpointing."""
    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth += frame.f_code is backward_code()
        frame = frame.f_back
    return depth > 1
