"""Makes torch.distributed know the backend "gyre". torch calls register() by itself where the wheel is installed.

That is at the end of every `import torch`, also of programs that have nothing to do with Gyre: nothing here may fail
then, take time or change what other backends do. So even Gyre's own modules are imported where they are needed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gyre.distributed.process_group import ProcessGroup


def register() -> None:
    """Registers the backend, once. Cheap: the engine is loaded when a process group is made. Never raises: what went
    wrong is logged, and `import gyre.distributed` raises it."""
    try:
        from gyre import _registration  # noqa: PLC0415

        _registration.register(_create)
    except Exception as failure:
        logging.getLogger("gyre").warning("the backend gyre of torch.distributed is not there: %s", failure)


def _create(options: Any, backend_options: object) -> ProcessGroup:
    from gyre.distributed.process_group import create  # noqa: PLC0415

    return create(options, backend_options)
