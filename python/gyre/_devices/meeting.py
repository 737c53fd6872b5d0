"""How the ranks of a job make a device's backend of torch.distributed together, without a process group."""

from __future__ import annotations

import functools
import logging
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from gyre._devices import delegates, interfaces
from gyre._operations import Kind
from gyre._runtime import Runtime
from gyre._tensors.requests import make_request
from gyre._torch_private import GroupPlace
from gyre.core import _core
from gyre.errors import MismatchError

_RECORD_BYTES = 256
# For a rank that opens the store, and for one that comes to it.
_STORE_TIMEOUT = timedelta(minutes=30)
# Of the library's own, which ends the process and says nothing about the cause: Gyre's limit comes first.
_NO_LIMIT = timedelta(days=365)
_MARGIN = timedelta(minutes=1)
# Not in the stubs; some torches are built without them.
_TCPStore: Any = getattr(dist, "TCPStore", None)
_PrefixStore: Any = getattr(dist, "PrefixStore", None)


def group_of_ranks(
    runtime: Runtime, device: torch.device, exchange: Callable[[torch.Tensor], torch.Tensor]
) -> Any | None:
    """A process group over the default backend of this rank's device; None if ranks share a device, which such
    backends refuse. Collective. `exchange` gives all ranks' tensors for this one's."""
    backend = str(delegates.default_of(device.type))
    on_one_host = runtime.place["local_size"] == runtime.size
    store = _open_store(on_one_host=on_one_host) if runtime.rank == 0 else None
    place_of_store = "" if store is None else f"{_own_host(runtime, on_one_host=on_one_host)} {store.port}"
    records = _exchanged(exchange, f"{place_of_store}\n{backend}\n{identity_of(device)}")
    for rank, (_, other, _) in enumerate(records):
        if other != backend:
            raise MismatchError(
                f"tensors on {device.type} go to torch's backend {backend} on rank {runtime.rank}, and to {other} on "
                f"rank {rank}; install the same torch on all hosts"
            )
    shared = _ranks_on_one_device(runtime, [identity for _, _, identity in records])
    if shared is not None:
        say_shared_once(runtime, device.type, backend, shared)
        return None
    if store is None:
        host, _, port = records[0][0].partition(" ")
        store = _TCPStore(host, int(port), is_master=False, timeout=_STORE_TIMEOUT)
    name = f"gyre.torch.{runtime.set_id}"
    limit = _core.longest_stall_seconds()
    timeout = 2 * timedelta(seconds=limit) + _MARGIN if limit else _NO_LIMIT
    place = GroupPlace(
        _PrefixStore(f"{name}/", store), runtime.rank, runtime.size, timeout, name, tuple(range(runtime.size))
    )
    return delegates.make(backend, device.type, place)


def _own_host(runtime: Runtime, *, on_one_host: bool) -> str:
    """By which the other ranks reach this one."""
    if on_one_host:
        return "127.0.0.1"
    host = str(_core.store_place().host)
    return host if runtime.job_rank == 0 else interfaces.own_address_towards(host)


def _open_store(*, on_one_host: bool) -> Any:
    """On one host nobody else can reach it over the network."""
    with socket.create_server(("127.0.0.1" if on_one_host else "", 0)) as listener:
        return _TCPStore(
            "127.0.0.1",
            listener.getsockname()[1],
            is_master=True,
            wait_for_workers=False,
            timeout=_STORE_TIMEOUT,
            master_listen_fd=listener.detach(),
        )


def _exchanged(exchange: Callable[[torch.Tensor], torch.Tensor], record: str) -> list[tuple[str, str, str]]:
    content = record.encode()[:_RECORD_BYTES].ljust(_RECORD_BYTES, b"\0")
    rows = exchange(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    texts = [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for row in rows]
    return [(place, backend, identity) for place, backend, identity in (text.split("\n") for text in texts)]


def identity_of(device: torch.device) -> str:
    """What tells it from all other devices of its host; empty if that is not known."""
    module = getattr(torch, device.type, None)  # Not all devices that a backend may be named for have one.
    properties = getattr(module, "get_device_properties", None)
    if properties is None:
        return ""
    found = properties(device)
    # Slices of one device have an address in common, and identifiers of their own.
    address = [getattr(found, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if None not in address:
        return ":".join(map(str, address))
    return str(getattr(found, "uuid", ""))


def ranks_on_one_device(runtime: Runtime, device: torch.device, name: str) -> tuple[int, int] | None:
    """Two of the ranks, each of which calls this with its own device. Collective, on the host, under this name."""
    content = identity_of(device).encode()[:_RECORD_BYTES].ljust(_RECORD_BYTES, b"\0")
    row = torch.frombuffer(bytearray(content), dtype=torch.uint8).unsqueeze(0)
    handle = runtime.core.submit(make_request(Kind.ALLGATHER, name, row, row.shape, source=row))
    handle.wait()
    found = bytes(memoryview(handle.take_result()[0]))
    rows = [found[start : start + _RECORD_BYTES] for start in range(0, len(found), _RECORD_BYTES)]
    return _ranks_on_one_device(runtime, [row.rstrip(b"\0").decode(errors="replace") for row in rows])


def _ranks_on_one_device(runtime: Runtime, identities: list[str]) -> tuple[int, int] | None:
    seen: dict[tuple[int, str], int] = {}
    for rank, (host, identity) in enumerate(zip(runtime.place["host_of_rank"], identities, strict=True)):
        first = seen.setdefault((host, identity), rank)
        if identity and first != rank:
            return first, rank
    return None


def say_shared_once(runtime: Runtime, device_type: str, backend: str, ranks: tuple[int, int]) -> None:
    """By rank 0, of two ranks whose tensors go through host memory therefore."""
    if runtime.rank == 0:
        _say_shared_once(device_type, backend, *ranks)


@functools.cache
def _say_shared_once(device_type: str, backend: str, first: int, second: int) -> None:
    logging.getLogger("gyre").warning(
        "ranks %d and %d use the same device, which torch's backend %s refuses: tensors on %s are exchanged through "
        "host memory (docs/guide/gpu.md). With a device for each rank, call "
        "torch.accelerator.set_device_index(local_rank)",
        first,
        second,
        backend,
        device_type,
    )
