"""Information about autograd that its hooks do not get."""

from __future__ import annotations

import sys
import threading
from types import FrameType

from gyre._torch_private import backward_code


def inside_another_backward() -> bool:
    """Whether this backward() was called by a node of another one, as in reentrant checkpointing."""
    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth += frame.f_code is backward_code()
        frame = frame.f_back
    # The nodes of a device run in a thread of autograd's, below which the outer backward() has no frame.
    return depth > 1 or (depth == 1 and not _in_a_thread_of_python())


def _in_a_thread_of_python() -> bool:
    """A thread that Python has not started is listed as a dummy at most, once something has asked for it."""
    own = threading.get_ident()
    return any(thread.ident == own and type(thread).__name__ != "_DummyThread" for thread in threading.enumerate())
