"""The network interface by which this host reaches the others, for libraries that choose by themselves: on hosts with
Docker's bridge or a VPN, NCCL may choose one that leads nowhere."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gyre.core import _core
from gyre.errors import Error

_NAME = "NCCL_SOCKET_IFNAME"
_SIOCGIFADDR = 0x8915
_NAME_BYTES, _ADDRESS_AT, _REQUEST_BYTES = 16, 20, 40
_ANY_PORT = 9  # Nothing is sent.


def name_for_nccl(store: Any) -> None:
    """Sets NCCL_SOCKET_IFNAME, unless the program or its user has. `store`: where the ranks meet."""
    if os.environ.get(_NAME):
        return
    named = os.environ.get("GYRE_INTERFACES") or next(filter(None, map(_interface_towards, _hosts(store))), None)
    if named:
        os.environ[_NAME] = f"={named}"  # These alone, and not all whose names begin so.


def _hosts(store: Any) -> Iterator[str]:
    """Names or addresses by which other ranks have reached rank 0."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if getattr(store, "host", ""):
        yield store.host
    with contextlib.suppress(Error):  # Without a launcher.
        yield _core.store_place().host


def own_address_towards(host: str) -> str:
    """The address of this host from which `host` is reached. OSError if it is not."""
    family, kind, protocol, _, place = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)
        return str(probe.getsockname()[0])


def _interface_towards(host: str) -> str | None:
    """None where the way stays within this host."""
    try:
        own = ipaddress.ip_address(own_address_towards(host).partition("%")[0])
    except (OSError, ValueError):
        return None
    return None if own.is_loopback else next((name for name, address in _addresses() if address == own), None)


def _addresses() -> Iterator[tuple[str, ipaddress.IPv4Address | ipaddress.IPv6Address]]:
    """Of the interfaces of this host, by name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_REQUEST_BYTES}s", name.encode()[: _NAME_BYTES - 1])
            with contextlib.suppress(OSError):  # It has none.
                found = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
                yield name, ipaddress.IPv4Address(found[_ADDRESS_AT : _ADDRESS_AT + 4])
    with contextlib.suppress(OSError):  # No IPv6 here.
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, name = line.split()
            yield name, ipaddress.IPv6Address(bytes.fromhex(digits))
