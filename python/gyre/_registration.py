"""Registration of the backend "gyre" with torch.distributed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from gyre import _gathering

NAME = "gyre"


def register(create: Callable[[Any, object], Any]) -> None:
    """Registers once; `create` makes a process group on request. Does nothing if torch has no torch.distributed."""
    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
    _gathering.extend_rendezvous()
