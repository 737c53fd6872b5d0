"""What an optimizer's exchange knows of one parameter."""

from __future__ import annotations

from typing import Any

import torch

from gyre._torch_private import version_of
from gyre.core import _core
from gyre.torch._tensors import tensor_over

NO_GROUP = -1


class Slot:
    """One parameter of the plan."""

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.index = 0  # In the plan.
        self.group = NO_GROUP  # Those of one group travel in a bucket of their own.
        self.wire = parameter  # Shaped, typed and laid out like what travels.
        self.context: Any = None  # What decompress() needs.
        self.place: torch.Tensor | None = None  # In the arena, once there is a plan.
        self.passes = 0  # Backward passes whose gradient has come in since the last step.
        self.ready = False  # Complete in this step; handed in, if there is a plan.
        self.sent: torch.Tensor | None = None  # What `grad` was then,
        self.sent_version = 0  # and how often it had been changed.
        self.result_version = 0  # How often the reduced gradient had been changed when backward() returned.

    def changed_since(self) -> bool:
        """Whether somebody has written into `grad` since it was complete, or put something else there."""
        if self.sent is None:
            return False
        return self.parameter.grad is not self.sent or version_of(self.sent) != self.sent_version

    def complete(self) -> None:
        """`grad` is what this rank contributes."""
        self.ready = True
        self.sent = self.parameter.grad
        self.sent_version = 0 if self.sent is None else version_of(self.sent)

    def reset(self) -> None:
        self.ready = False
        self.passes = 0
        self.sent = None


def layout_name(slot: Slot) -> str:
    """Elements travel in the order of memory, so ranks must agree on it: an unusual one is part of the name."""
    return slot.name if slot.wire.is_contiguous() else f"{slot.name} (strides {list(slot.parameter.stride())})"


def place_over(memory: _core.Memory, wire: torch.Tensor) -> torch.Tensor:
    """The tensor's place in the arena, with the strides of `wire` (which keep those of a dense parameter)."""
    place = tensor_over(memory, wire.dtype, wire.shape)
    return place if wire.is_contiguous() else place.view(-1).as_strided(wire.shape, wire.stride())
