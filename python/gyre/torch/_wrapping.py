"""Turning an optimizer into a distributed one."""

from __future__ import annotations

from typing import Any

import torch

from gyre._torch_private import steps_under_another_class


def wrap(optimizer: torch.optim.Optimizer, mixin: type[torch.optim.Optimizer]) -> Any:
    """The optimizer under another class: its own, named as before, with `mixin` in front. They share parameters and
    state."""
    base = type(optimizer)
    class_ = type(base.__name__, (mixin, base), {"__doc__": base.__doc__, "__module__": base.__module__})
    wrapped: Any = object.__new__(class_)
    # A learning-rate scheduler made before left a `step` of the old class,
    wrapped.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    steps_under_another_class(optimizer)  # and would warn that the old optimizer never steps.
    return wrapped
