"""Registers the backend "gyre" with torch.distributed. torch calls register() by itself if the wheel is installed.

That happens at the end of every `import torch`, even in programs that do not use Gyre: nothing here may fail, take time
or change how other backends work. Even Gyre's own modules are therefore imported only where they are needed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gyre.distributed.process_group import ProcessGroup


def register() -> None:
    """Registers the backend, once. Cheap: the engine is loaded when a process group is made. Never raises: errors
    are logged, and `import gyre.distributed` raises them."""
    try:
        from gyre import _registration  # noqa: PLC0415

        _registration.register(_create)
    except Exception as failure:
        logging.getLogger("gyre").warning("the backend gyre of torch.distributed is not available: %s", failure)


def _create(options: Any, backend_options: object) -> ProcessGroup:
    from gyre.distributed.process_group import create  # noqa: PLC0415

    return create(options, backend_options)
