"""Where the ranks of a process group are, from what a stranger cannot forge."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

from gyre.core import _core
from gyre.errors import InvalidArgumentError


def are_all_on_this_host(store: Any, world_size: int) -> bool:
    """Whether all ranks of torch's world are certainly on this host: the launcher says so, or the store is reached
    in a way that leads to this host only. False: unknown."""
    with contextlib.suppress(InvalidArgumentError):  # Ranks that somebody else has numbered.
        place = _core.launched_place()
        if place.local_size > 0 and place.size == world_size:
            return place.local_size == place.size
    innermost = _innermost(store)
    kind = type(innermost).__name__  # torch's own; a HashStore is in this process.
    return kind == "HashStore" or (kind == "TCPStore" and _is_loopback(innermost.host))


def address_for_others(store: Any) -> str:
    """The address of this host from which it reaches the store's host: the others can reach it there too."""
    host = getattr(_innermost(store), "host", "") or os.environ.get("MASTER_ADDR", "") or socket.gethostname()
    family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # Sends nothing.
        own = str(probe.getsockname()[0])
    if own.startswith("127.") or own == "::1":
        raise InvalidArgumentError(
            f"the ranks are on several hosts, but '{host}' is reached through the loopback here; "
            "give init_process_group an address that all hosts can reach (MASTER_ADDR, or tcp://HOST:PORT)"
        )
    return own


def _innermost(store: Any) -> Any:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _is_loopback(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = [str(entry[4][0]) for entry in found]
    return bool(addresses) and all(address.startswith("127.") or address == "::1" for address in addresses)
