"""Makes torch.distributed know the backend "gyre". torch calls register() by itself where the wheel is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gyre import _accelerate, _gathering

if TYPE_CHECKING:
    from gyre.distributed.process_group import ProcessGroup

NAME = "gyre"


def register() -> None:
    """Registers the backend, once. Cheap: the engine is loaded when a process group is made. Never raises, because
    torch calls it at the end of `import torch`, which must work also where torch.distributed was not built."""
    import torch.distributed as dist  # noqa: PLC0415

    if not dist.is_available() or NAME.upper() in getattr(dist.Backend, "_plugins", {}):
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    _accelerate.serve()
    _gathering.watch_rendezvous()


def _create(options: Any, backend_options: object) -> ProcessGroup:
    from gyre.distributed.process_group import create  # noqa: PLC0415

    return create(options, backend_options)
