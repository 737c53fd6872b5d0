"""Where loading spent its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class StallLedger:
    """The cost of loading in this epoch so far. `str()` of it is one readable line. Times are in seconds."""

    batches: int
    waited: float
    """Time that the training loop waited for batches that were not ready."""
    waited_for: Mapping[str, float]
    """`waited`, split by the kind of work on each batch: "source", "inflate", "decode", "transform",
    "assemble"."""
    worked: Mapping[str, float]
    """Time that all threads together worked, split in the same way."""
    first_batch: float
    """From the start of the epoch to its first batch."""
    damaged: int = 0
    """Samples that were replaced by others (`damaged="replace"`)."""
    first_damage: str = ""
    """What was wrong with the first of them."""

    def __str__(self) -> str:
        total = sum(self.worked.values()) or 1.0
        split = ", ".join(f"{stage} {100 * time / total:.0f} %" for stage, time in self.worked.items())
        damage = f"; {self.damaged} damaged samples were replaced, first {self.first_damage}" if self.damaged else ""
        return (
            f"{self.batches} batches, the first after {self.first_batch:.2f} s; waited {self.waited:.2f} s for data; "
            f"the threads worked {sum(self.worked.values()):.2f} s: {split}{damage}"
        )
