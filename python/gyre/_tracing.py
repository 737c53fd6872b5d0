"""What torch.compile may look into."""

from __future__ import annotations

import sys

_told = False


def keep_out_of_graphs() -> None:
    """Tells torch.compile's tracer, if torch has loaded it, that Gyre's functions are not to be traced: it would follow
    an operation into the engine's handles, and fail. Cheap enough for every operation; torch loads the tracer late."""
    global _told  # noqa: PLW0603 - the tracer's rules are the process's too
    if _told or "torch._dynamo" not in sys.modules:
        return
    add = getattr(sys.modules.get("torch._dynamo.trace_rules"), "add", None)
    if add is not None:
        add("gyre")
        _told = True
