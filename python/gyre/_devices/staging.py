"""Staging: tensors on a device go through pinned host memory, where Gyre's own exchange runs. For ranks that share a
device, which NCCL refuses, for devices without a backend, and for gyre.torch.

All waits of it are the three functions wait_on_host(), wait_on_device() and note_use(); those of a delegate are the
last two and wait_for_work(). It is tested on the simulated device of tests/device, which shows each that is missing.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from gyre._devices.tried import tried_on
from gyre.errors import UnsupportedError

Pair = tuple[torch.Tensor, torch.Tensor]  # In pinned host memory, and on the device.


@functools.cache
def say_once(device_type: str) -> None:
    logging.getLogger("gyre").warning(
        "tensors on %s are exchanged through host memory; %s (docs/guide/gpu.md)", device_type, tried_on(device_type)
    )


def is_present(device_type: str) -> bool:
    """Whether this process has such a device."""
    try:
        module = torch.get_device_module(device_type)
    except RuntimeError:
        return False
    return bool(getattr(module, "is_available", lambda: False)())


def twin_of(like: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> torch.Tensor:
    """Pinned host memory for its values, which torch keeps until all copies that use it have run."""
    try:
        return torch.empty_like(like, device="cpu", pin_memory=True, memory_format=memory_format, requires_grad=False)
    except RuntimeError as failure:
        _say_unpinned_once(str(failure).partition("\n")[0])
        return torch.empty_like(like, device="cpu", memory_format=memory_format, requires_grad=False)


@functools.cache
def _say_unpinned_once(failure: str) -> None:
    logging.getLogger("gyre").warning(
        "host memory for a device's tensors could not be pinned (%s), so that copies are slower; raise the limit of "
        "locked memory (ulimit -l)",
        failure,
    )


def wait_on_host(point: torch.Stream | torch.Event) -> None:
    point.synchronize()


def wait_on_device(stream: torch.Stream, event: torch.Event) -> None:
    """The stream waits, not the host."""
    stream.wait_event(event)


def wait_for_work(work: Any) -> None:
    """The current stream waits for what a delegate does on a stream of its own, not the host."""
    work.wait()


def note_use(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """If the tensor is freed, its memory is not given to others before the stream has passed this point."""
    tensor.record_stream(stream)


def current_stream(device: torch.device, action: str) -> torch.Stream:
    """UnsupportedError while it is captured for a graph. `action` starts the message."""
    stream = torch.accelerator.current_stream(device)
    if is_capturing(stream, device):
        raise UnsupportedError(f"{action}: a graph that is captured on {device} cannot contain an exchange of Gyre's")
    return stream


@functools.cache
def has_streams(device_type: str) -> bool:
    """Whether it is this process's accelerator; a backend can be named for other types too."""
    found = torch.accelerator.current_accelerator()
    return found is not None and found.type == device_type


def is_capturing(current: torch.Stream, device: torch.device) -> bool:
    """Whether the current stream of a device is captured for a graph."""
    ask = getattr(current, "is_capturing", None)
    if ask is not None:
        return bool(ask())
    # torch 2.11 asks the module of the device, about the current stream.
    ask = getattr(torch.get_device_module(device), "is_current_stream_capturing", None)
    if ask is None:
        return False
    with torch.accelerator.device_index(device.index):
        return bool(ask())


def to_host(pairs: Iterable[Pair], action: str) -> None:
    """Copies tensors to their twins, and waits on the host until the values are there."""
    streams: dict[torch.device, torch.Stream] = {}
    for twin, tensor in pairs:
        if tensor.device not in streams:
            streams[tensor.device] = current_stream(tensor.device, action)
        twin.copy_(tensor.detach().resolve_neg(), non_blocking=True)
    for stream in streams.values():
        wait_on_host(stream)


class Landing:
    """The way of results back to their devices, once they are in host memory. Thread-safe."""

    def __init__(self, results: list[Pair]) -> None:
        self._results = results
        self._lock = threading.Lock()
        self._landed: dict[torch.device, torch.Event] | None = None

    def land(self) -> None:
        """The caller's current streams wait for the results; the first caller's make the copies."""
        with self._lock:
            if self._landed is not None:
                for device, event in self._landed.items():
                    wait_on_device(torch.accelerator.current_stream(device), event)
                return
            streams: dict[torch.device, torch.Stream] = {}
            for twin, tensor in self._results:
                if tensor.device not in streams:
                    streams[tensor.device] = torch.accelerator.current_stream(tensor.device)
                tensor.detach().copy_(twin, non_blocking=True)
                note_use(tensor, streams[tensor.device])
            self._results = []  # torch keeps pinned memory until the copies have run.
            self._landed = {device: stream.record_event() for device, stream in streams.items()}


class Outward:
    """Tensors on their way to host memory while the device computes on, on a stream of their own for each device. Used
    by one thread at a time."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.Stream] = {}
        self._under_way: deque[tuple[torch.Event, torch.Tensor, Callable[[torch.Tensor], None]]] = deque()

    def send(
        self, tensor: torch.Tensor, twin: torch.Tensor, arrived: Callable[[torch.Tensor], None], action: str
    ) -> None:
        """`arrived` is called with the twin, by a later deliver(). The tensor may be freed, but not changed."""
        device = tensor.device
        computes = current_stream(device, action)
        if device not in self._streams:
            self._streams[device] = torch.Stream(device)
        copies = self._streams[device]
        wait_on_device(copies, computes.record_event())
        with copies:
            source = tensor.detach().resolve_neg()
            if source.dtype != twin.dtype or source.stride() != twin.stride():
                source = torch.empty_strided(twin.shape, twin.stride(), dtype=twin.dtype, device=device).copy_(source)
            twin.copy_(source, non_blocking=True)
        note_use(tensor, copies)
        self._under_way.append((copies.record_event(), twin, arrived))

    def deliver(self) -> None:
        """Waits on the host for each in turn."""
        while self._under_way:
            event, twin, arrived = self._under_way[0]
            wait_on_host(event)
            arrived(twin)
            self._under_way.popleft()

    def forget(self) -> None:
        """What has not been delivered."""
        self._under_way.clear()
