"""On what hardware Gyre has run, for its messages: docs/performance/devices-*.md has the runs."""

from __future__ import annotations

import torch


def tried_on(device_type: str) -> str:
    """A clause."""
    if device_type == "cuda" and torch.version.hip is None:
        return "of such hardware Gyre has run on one NVIDIA H200 only, never on several GPUs at once"
    return "no part of Gyre has ever run on such hardware"
