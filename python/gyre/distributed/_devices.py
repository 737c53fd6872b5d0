"""Tensors of other devices, in a group that serves several: `init_process_group("cpu:gyre,cuda:nccl")`.

For such a string torch makes one ProcessGroup that holds a C++ backend for each device; but a backend that is itself a
ProcessGroup, as every one in Python is, replaces all of them. Ours therefore forwards operations on another device to a
group over the backend that the string names for it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

Method = TypeVar("Method", bound=Callable[..., Any])

# `list | tuple` at the call would be made anew each time, which takes a microsecond.
_SEQUENCES = (list, tuple)


class OtherDevices:
    """The devices of one group that belong to other backends. Thread-safe."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._lock = threading.Lock()
        self._backends: dict[str, str] | None = None  # By device type; known once torch knows the group.
        self._group: Any = None

    def backends(self) -> dict[str, str]:
        """{"cuda": "nccl"}; None while torch is still making the group."""
        if self._backends is None:
            try:
                config = dist.get_backend_config(self._owner)
            except (ValueError, TypeError):
                return {}
            pairs = (pair.split(":") for pair in config.split(","))
            own = self._owner.name()
            self._backends = {device: backend for device, backend in pairs if backend != own and device != "cpu"}
        return self._backends

    def group_for(self, device: torch.device) -> Any:
        """The group that serves `device`; None if this one does. Collective on the first call."""
        if device.type == "cpu" or device.type not in self.backends():
            return None
        with self._lock:
            if self._group is None:
                self._group = dist.new_group(
                    ranks=dist.get_process_group_ranks(self._owner),
                    timeout=self._owner.timeout,
                    backend=",".join(f"{other}:{backend}" for other, backend in self.backends().items()),
                    use_local_synchronization=True,  # Only the ranks of this group are here,
                    sort_ranks=False,  # in this order.
                    group_desc=f"{self._owner.getGroupDesc()}:{device.type}",
                )
            return self._group


def by_device(method: Method) -> Method:
    """A method of a process group, whose first tensor decides which group runs it."""
    name = method.__name__

    @functools.wraps(method)
    def routed(self: Any, *arguments: Any, **options: Any) -> Any:
        tensor = _first_tensor(arguments)
        if tensor is not None and not tensor.is_cpu:
            group = self.other_devices.group_for(tensor.device)
            if group is not None:
                return getattr(group, name)(*arguments, **options)
        return method(self, *arguments, **options)

    return cast("Method", routed)


def _first_tensor(arguments: tuple[Any, ...]) -> torch.Tensor | None:
    """In lists, and in lists of them."""
    for argument in arguments:
        value = argument
        while isinstance(value, _SEQUENCES) and value:
            value = value[0]
        if isinstance(value, torch.Tensor):
            return value
    return None
