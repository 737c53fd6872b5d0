"""Delegates: the backends of torch.distributed that exchange the tensors of a device (NCCL for cuda), made by Gyre.
Nothing else in the package names a vendor's library.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
import torch.distributed as dist

from gyre import _torch_private
from gyre._devices import interfaces, library_threads
from gyre._devices.tried import tried_on
from gyre._torch_private import GroupPlace
from gyre.errors import UnsupportedError

# Libraries that come with torch, in some builds: the class of their backend. Its constructor waits for no other rank.
_VENDORS = {"nccl": "ProcessGroupNCCL", "xccl": "ProcessGroupXCCL"}
# Those that do not mind ranks with one device.
SHARING_DEVICES = frozenset({"gloo"})


class OnCurrentStream:
    """Stands for a call that was not asynchronous, for which NCCL returns no work: it runs on the current stream."""

    def __init__(self, device: torch.device, *, is_captured: bool) -> None:
        """`is_captured`: for a graph, whose events cannot be asked."""
        self._end = None if is_captured else torch.accelerator.current_stream(device).record_event()

    def is_completed(self) -> bool:
        return self._end is None or bool(self._end.query())


def default_of(device_type: str) -> str | None:
    """The backend that torch takes for a device if the program names none; None if there is none for it.

    Read at each call: plug-ins for other vendors' devices add theirs after Gyre has been imported."""
    if not dist.is_available():
        return None
    return dist.Backend.default_device_backend_map.get(device_type)


def can_be_made_late(backend: str) -> bool:
    """Whether a rank can make it when it needs it; other constructors may wait for all ranks of the group."""
    return backend in _VENDORS


def is_missing(backend: str) -> bool:
    """Whether it comes with torch, but not with this build."""
    return backend in _VENDORS and not hasattr(dist, _VENDORS[backend])


def make(backend: str, device_type: str, place: GroupPlace) -> Any:
    """A process group that holds this backend alone, for this device alone. Collective if not can_be_made_late()."""
    try:
        with library_threads.started_here():
            made = _made(backend, place)
    except UnsupportedError:
        raise
    except Exception as failure:
        raise UnsupportedError(
            f"tensors on {device_type} go to torch's backend {backend}, which could not be made: {failure}"
        ) from failure
    if place.rank == 0:
        _say_once(device_type, backend)
    if isinstance(made, dist.ProcessGroup):
        return made
    return _torch_private.group_over(made, device_type, backend, place)


def _made(backend: str, place: GroupPlace) -> Any:
    if backend in _VENDORS:
        if is_missing(backend):
            raise UnsupportedError(
                f"this torch ({torch.__version__}) has no {backend.upper()}; install a build for your devices"
            )
        if backend == "nccl":
            interfaces.name_for_nccl(place.store)
        return _torch_private.vendors_backend(getattr(dist, _VENDORS[backend]), place)
    if backend == "gloo":
        return _torch_private.gloo_backend(place)
    return _torch_private.plugin_backend(backend, place)


@functools.cache
def _say_once(device_type: str, backend: str) -> None:
    logging.getLogger("gyre").warning(
        "tensors on %s go to torch's backend %s, over connections that Gyre neither authenticates nor encrypts%s "
        "(docs/guide/gpu.md)",
        device_type,
        backend,
        "" if device_type == "cpu" else f"; {tried_on(device_type)}",
    )
