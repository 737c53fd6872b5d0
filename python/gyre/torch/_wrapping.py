"""Making an optimizer a distributed one."""

from __future__ import annotations

from typing import Any

import torch


def wrap(optimizer: torch.optim.Optimizer, mixin: type[torch.optim.Optimizer]) -> Any:
    """The optimizer under another class: its own, named as before, with `mixin` in front. They share parameters and
    state."""
    base = type(optimizer)
    class_ = type(base.__name__, (mixin, base), {"__doc__": base.__doc__, "__module__": base.__module__})
    wrapped: Any = object.__new__(class_)
    # A learning-rate scheduler made before left a `step` of the old class,
    wrapped.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    optimizer.__dict__["_opt_called"] = True  # and would warn that the old optimizer never steps.
    return wrapped
