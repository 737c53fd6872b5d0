"""Where the ranks of a process group are, from what a stranger cannot forge."""

from __future__ import annotations

import os
import socket
from typing import Any

from gyre.errors import InvalidArgumentError

# A launcher's variables: how many ranks there are on this host, and in all.
_COUNTS = (
    ("LOCAL_WORLD_SIZE", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"),
    ("MPI_LOCALNRANKS", "PMI_SIZE"),
)


def are_all_on_this_host(store: Any, world_size: int) -> bool:
    """Whether all ranks of torch's world are certainly on this host: the launcher says so, or the store is reached
    in a way that leads to this host only. False: unknown."""
    for local, whole in _COUNTS:
        counts = (os.environ.get(local, ""), os.environ.get(whole, ""))
        if all(count.isdecimal() for count in counts) and int(counts[1]) == world_size:
            return counts[0] == counts[1]
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
