"""How the ranks of a process group find each other: they agree through torch's store and connect over Gyre's own
links."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import stat
import time
import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from gyre import _gathering
from gyre._runtime import Runtime, failure_descriptor
from gyre.core import _core
from gyre.distributed._store import came
from gyre.errors import InvalidArgumentError, TimeoutError

KEY_BYTES = 32
# All ranks have appeared in the store before they join, so joining takes only moments.
LONGEST_JOIN_SECONDS = 60.0


def join_group(
    store: Any,
    rank: int,
    size: int,
    timeout: timedelta,
    description: str,
    *,
    timeline: bool,
    global_ranks: Sequence[int] = (),
) -> tuple[Runtime, str]:
    """The runtime of a process group, and a unique name of this group, for keys in the store. Collective; TimeoutError
    names the ranks that did not arrive within `timeout`, or within GYRE_START_TIMEOUT_SECONDS if that is shorter;
    PeerLostError names one that `gyre run` has seen exit.

    On one host the ranks get the group's key from rank 0 over a Unix socket, where the kernel vouches for the user.
    Over several hosts it is derived from the job's secret (`gyre run`, GYRE_KEY_FILE); without one, rank 0 generates a
    key and shares it through the store, so it is only as private as the store: a warning says so.

    `global_ranks`: the ranks' numbers in the job, for a group that is not all of it.
    """
    secret = _secret()
    own_host = {"host": _core.host_id(), "secret": secret is not None}
    members = _gathering.launchers_ranks(dist.get_world_size() if global_ranks else size, global_ranks)
    wait = _Wait(store, _start_limit(timeout), description, members)
    agreement, listener = _agree(wait, rank, size, own_host)
    with listener or contextlib.nullcontext():
        around = (list(global_ranks), failure_descriptor())
        core = _join(agreement, rank, size, secret, listener, timeout, timeline, around)
    return Runtime(core), agreement["nonce"]


def _start_limit(timeout: timedelta) -> float:
    text = os.environ.get("GYRE_START_TIMEOUT_SECONDS", "")
    if not text:
        return timeout.total_seconds()
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgumentError(f"GYRE_START_TIMEOUT_SECONDS is '{text}'; a number of at least 1 is needed")
    return min(timeout.total_seconds(), float(text))


class _Wait:
    """Reads what other ranks write into the store, all within one time limit."""

    def __init__(self, store: Any, limit: float, description: str, members: Sequence[int]) -> None:
        self.store = store
        self._limit = limit
        self._until = time.monotonic() + limit
        self._description = description
        self._members = members  # The launcher's numbers; none if it does not report which ranks have ended.

    def read(self, key: str, rank: int) -> Any:
        """What `rank` has written, or will write."""
        if self._members:
            _gathering.wait_until(lambda: bool(self.store.check([key])), self._members, self._until)
        if not came(self.store, key, self._until):
            raise TimeoutError(
                f"{self._description}: rank {rank} did not come to init_process_group or new_group within "
                f"{self._limit:g} s; see what it printed, and whether all ranks were started with the same size"
            )
        return json.loads(self.store.get(key))


def _agree(wait: _Wait, rank: int, size: int, own_host: dict[str, Any]) -> tuple[dict[str, str], socket.socket | None]:
    """Where and how to join; for rank 0 possibly also the socket to listen on."""
    # A store may outlive a group (torchrun's does): each rendezvous has names of its own.
    generation = (wait.store.add("gyre.joined", 1) - 1) // size
    prefix = f"gyre.{generation}"
    wait.store.set(f"{prefix}.rank.{rank}", json.dumps(own_host))
    if rank != 0:
        return wait.read(f"{prefix}.agreement", 0), None
    hosts = [wait.read(f"{prefix}.rank.{other}", other) for other in range(size)]
    agreement, listener = _arrange(wait.store, hosts)
    wait.store.set(f"{prefix}.agreement", json.dumps(agreement))
    return agreement, listener


def _arrange(store: Any, hosts: list[dict[str, Any]]) -> tuple[dict[str, str], socket.socket | None]:
    """Rank 0: where and how to join, and the socket to listen on."""
    nonce = secrets.token_hex(16)
    if len({host["host"] for host in hosts}) == 1:
        return {"name": f"gyre-torch-{nonce}", "nonce": nonce}, None
    address = _own_address(store)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, 0), family=family, backlog=max(512, len(hosts)))
    port = listener.getsockname()[1]
    host = f"[{address}]" if family == socket.AF_INET6 else address
    agreement = {"rendezvous": f"tcp:{host}:{port}", "nonce": nonce}
    if not all(host["secret"] for host in hosts):
        agreement["key"] = secrets.token_hex(KEY_BYTES)
        warnings.warn(
            "this job has no secret (`gyre run` makes one; else set GYRE_KEY_FILE), so the process group's key travels "
            "through torch's store, where everybody who can reach the store's port can read it",
            stacklevel=2,
        )
    return agreement, listener


def _join(
    agreement: dict[str, str],
    rank: int,
    size: int,
    secret: bytes | None,
    listener: socket.socket | None,
    timeout: timedelta,
    timeline: bool,
    around: tuple[Sequence[int], int | None],
) -> _core.Runtime:
    limit = min(timeout.total_seconds(), LONGEST_JOIN_SECONDS)
    if "name" in agreement:
        return _core.join_on_this_host(
            rank=rank,
            size=size,
            name=agreement["name"],
            join_timeout_seconds=limit,
            operation_timeout_seconds=timeout.total_seconds(),
            timeline=timeline,
            around=around,
        )
    if "key" in agreement:
        key = bytes.fromhex(agreement["key"])
    else:
        assert secret is not None, "rank 0 has checked that every rank has the secret"
        key = hmac.digest(secret, f"gyre torch group {agreement['nonce']}".encode(), "sha256")
    return _core.join_at(
        rank=rank,
        size=size,
        rendezvous=agreement["rendezvous"],
        key=key,
        listener=listener.fileno() if listener is not None else None,
        join_timeout_seconds=limit,
        operation_timeout_seconds=timeout.total_seconds(),
        timeline=timeline,
        around=around,
    )


def _secret() -> bytes | None:
    """The secret that the ranks of the job share, if a launcher or the user has provided one."""
    descriptor = os.environ.get("GYRE_KEY_FD", "")
    if descriptor.isdecimal():
        with contextlib.suppress(OSError):  # Closed by a program between `gyre run` and this process.
            key = os.pread(int(descriptor), KEY_BYTES, 0)
            if len(key) == KEY_BYTES:
                return key
    name = os.environ.get("GYRE_KEY_FILE", "")
    return _key_file(Path(name)) if name else None


def _key_file(path: Path) -> bytes:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise InvalidArgumentError(
            f"GYRE_KEY_FILE '{path}' is not private: it must be a file of the user that runs the job, with no access "
            "for others (chmod 600)"
        )
    secret = path.read_bytes()
    if len(secret) < KEY_BYTES:
        raise InvalidArgumentError(
            f"GYRE_KEY_FILE '{path}' has {len(secret)} bytes; at least {KEY_BYTES} random ones are needed"
        )
    return secret


def _own_address(store: Any) -> str:
    """The address of this host from which it reaches the store's host: the others can reach it there too."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", "") or os.environ.get("MASTER_ADDR", "") or socket.gethostname()
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
