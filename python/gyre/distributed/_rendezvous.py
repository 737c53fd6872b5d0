"""How the ranks of a process group find each other: they agree through torch's store, which authenticates nobody, and
connect over Gyre's own links. docs/adr/0066 has a table of what they believe, and why."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import secrets
import socket
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from gyre import _gathering
from gyre._program_position import stacklevel_of_program
from gyre._runtime import Runtime, failure_descriptor
from gyre.core import _core
from gyre.distributed._mixtures import HELLO, Mixtures
from gyre.distributed._placement import address_for_others, are_all_on_this_host
from gyre.distributed._store import Wait, count
from gyre.distributed._words import RefusedWordError, SealedWords, Words, text_in
from gyre.errors import AuthenticationError, Error, InvalidArgumentError, TimeoutError

# All ranks have appeared in the store before they join, so joining takes only moments.
LONGEST_JOIN_SECONDS = 60.0
AGREEMENT, REFUSAL = "agreement", "refusal"
LONGEST_REPORT = 1000


@dataclass
class Joined:
    """A process group's runtime, and a secret that its ranks share and nobody else."""

    runtime: Runtime
    secret: _core.Secret


@dataclass
class _Place:
    """Where and how to join."""

    key: _core.Secret
    rendezvous: str
    listener: socket.socket | None = None  # Rank 0's, if the ranks are on several hosts.


def join_group(
    store: Any,
    rank: int,
    size: int,
    timeout: timedelta,
    description: str,
    *,
    timeline: bool,
    global_ranks: Sequence[int] = (),
) -> Joined:
    """Collective; TimeoutError names the ranks that did not arrive within `timeout`, or within
    GYRE_START_TIMEOUT_SECONDS if that is shorter; PeerLostError names one that `gyre run` has seen exit;
    AuthenticationError and MismatchError as the table in docs/adr/0066 says.

    `global_ranks`: the ranks' numbers in the job, for a group that is not all of it.
    """
    world_size = dist.get_world_size() if global_ranks else size
    members = _gathering.launchers_ranks(world_size, global_ranks)
    wait = Wait(store, _gathering.start_limit(timeout), description, members)
    # The ranks of another group of ours have its secret already, which is newer than the job's.
    secret = _secret_of_world() if global_ranks else None
    secret = secret or _core.Secret.from_environment()
    agree: _WithSecret | _WithoutSecret
    if secret is not None:
        agree = _WithSecret(wait, rank, size, secret)
    else:
        agree = _WithoutSecret(wait, rank, size, are_all_on_this_host(store, world_size))
    place = agree.agree()
    around = (list(global_ranks), failure_descriptor())
    with place.listener or contextlib.nullcontext():
        try:
            core = _join(place, rank, size, timeout, timeline, around)
        except TimeoutError:
            agree.raise_refusal()
            raise
    return Joined(Runtime(core), place.key.derive("gyre torch group's secret"))


def _secret_of_world() -> _core.Secret | None:
    """That of torch's default group, whose ranks include those of every other group; None if it is not Gyre's."""
    secret = getattr(dist.group.WORLD, "gyre_secret", None)
    return secret.derive("gyre torch part of world") if isinstance(secret, _core.Secret) else None


class _WithSecret:
    """The agreement of ranks that share a secret. A rank believes words alone that were signed with it, and for this
    group: rank 0's word returns the random number of the rank that it is for. The group's key follows from the secret
    and the random numbers of all ranks."""

    def __init__(self, wait: Wait, rank: int, size: int, secret: _core.Secret) -> None:
        key = secret.derive("gyre torch store")
        # A store may outlive a group (torchrun's does): each rendezvous has names of its own.
        counter = SealedWords(wait.store, wait.description, key).name("joined", 0)
        generation = (count(wait.store, counter, wait.description) - 1) // size
        self._wait = wait
        self._rank = rank
        self._size = size
        self._secret = secret.derive("gyre torch group")
        self._words = SealedWords(wait.store, f"{generation} of {wait.description}", key)
        self._mixtures = Mixtures(self._words, rank, size, generation, wait.description, has_secret=True)
        self._nonce = secrets.token_hex(16)

    def agree(self) -> _Place:
        self._words.write(HELLO, self._rank, {"host": _core.host_id(), "nonce": self._nonce})
        self._mixtures.note()
        return self._arrange() if self._rank == 0 else self._follow()

    def _arrange(self) -> _Place:
        """Rank 0."""
        hellos = [{"host": _core.host_id(), "nonce": self._nonce}]
        for rank in range(1, self._size):
            hint = functools.partial(self._mixtures.check_as_rank_zero, rank)
            hellos.append(self._wait.read(self._words, HELLO, rank, _hello_in, hint))
        everybody = hashlib.sha256(json.dumps([hello["nonce"] for hello in hellos]).encode()).hexdigest()
        word = {"nonce": self._nonce, "everybody": everybody, "rendezvous": ""}
        failure: Error | None = None
        listener = None
        hosts = [hello["host"] for hello in hellos]
        if len(set(hosts)) > 1:
            try:
                listener, word["rendezvous"] = _listen_for_others(self._wait.store, hosts)
            except InvalidArgumentError as error:
                failure, word = error, {"failure": str(error)}
        for rank, hello in enumerate(hellos[1:], start=1):
            self._words.write(f"{AGREEMENT} with rank {rank}", 0, {**word, "yours": hello["nonce"]})
        if failure is not None:
            raise failure
        return self._place(word, listener)

    def _follow(self) -> _Place:
        purpose = f"{AGREEMENT} with rank {self._rank}"
        try:
            word = self._wait.read(self._words, purpose, 0, self._checked, self._mixtures.check)
        except AuthenticationError as failure:
            self._words.write(REFUSAL, 0, {"text": str(failure)[:LONGEST_REPORT]})
            raise
        if "failure" in word:
            raise InvalidArgumentError(text_in(word, "failure"))
        return self._place(word, None)

    def _checked(self, word: dict[str, Any]) -> dict[str, Any]:
        if word.get("yours") != self._nonce:
            raise RefusedWordError("it is of an earlier group, or answers what another process wrote for this rank")
        return word

    def _place(self, word: dict[str, Any], listener: socket.socket | None) -> _Place:
        parts = [self._words.scope, text_in(word, "nonce"), text_in(word, "everybody")]
        key = self._secret.derive(json.dumps(parts))
        return _Place(key, text_in(word, "rendezvous") or key.rendezvous_on_this_host(), listener)

    def raise_refusal(self) -> None:
        """The AuthenticationError of a rank that did not join because it refused rank 0's word, if there is one."""
        if not self._words.is_there(REFUSAL, 0):
            return
        with contextlib.suppress(RefusedWordError):
            raise AuthenticationError(text_in(self._words.read(REFUSAL, 0), "text"))


class _WithoutSecret:
    """The agreement of ranks that share nothing. On one host rank 0 hands them a key over a Unix socket, where the
    kernel vouches for the user; the store only names the socket. Over several hosts the key is in the store."""

    def __init__(self, wait: Wait, rank: int, size: int, all_here: bool) -> None:
        """`all_here`: all ranks are certainly on this host, whatever the store says."""
        generation = (count(wait.store, "gyre.joined", wait.description) - 1) // size
        self._wait = wait
        self._rank = rank
        self._size = size
        self._all_here = all_here
        self._words = Words(wait.store, str(generation))
        self._mixtures = Mixtures(self._words, rank, size, generation, wait.description, has_secret=False)

    def agree(self) -> _Place:
        self._words.write(HELLO, self._rank, {"host": _core.host_id()})
        self._mixtures.note()
        if self._rank != 0:
            return self._wait.read(self._words, AGREEMENT, 0, self._follow, self._mixtures.check)
        hosts = [_core.host_id()]
        for rank in range(1, self._size):
            hint = functools.partial(self._mixtures.check_as_rank_zero, rank)
            hosts.append(self._wait.read(self._words, HELLO, rank, self._host_in, hint))
        return self._meet_here() if self._all_here or len(set(hosts)) == 1 else self._meet_through_store(hosts)

    def _host_in(self, word: dict[str, Any]) -> str:
        return _core.host_id() if self._all_here else text_in(word, "host")

    def _meet_here(self) -> _Place:
        key = _core.Secret.random()
        server = _core.LocalKeyServer()
        self._words.write(AGREEMENT, 0, {"meet": server.name})
        server.hand_out(self._size, key, min(self._wait.remaining(), LONGEST_JOIN_SECONDS))
        return _Place(key, key.rendezvous_on_this_host())

    def _meet_through_store(self, hosts: Sequence[str]) -> _Place:
        key = _core.Secret.random()
        try:
            listener, rendezvous = _listen_for_others(self._wait.store, hosts)
        except InvalidArgumentError as error:
            self._words.write(AGREEMENT, 0, {"failure": str(error)})
            raise
        self._words.write(AGREEMENT, 0, {"rendezvous": rendezvous, "key": key.hex()})
        _warn_of_open_store()
        return _Place(key, rendezvous, listener)

    def _follow(self, word: dict[str, Any]) -> _Place:
        """Another rank, which has read rank 0's word."""
        if "meet" in word:
            try:
                key = _core.fetch_key_on_this_host(text_in(word, "meet"), self._rank, LONGEST_JOIN_SECONDS)
            except Error as failure:
                raise RefusedWordError(str(failure)) from None
            return _Place(key, key.rendezvous_on_this_host())
        if self._all_here:
            raise RefusedWordError("it leads to another host or to nobody, and all ranks are on this one")
        if "failure" in word:
            raise InvalidArgumentError(text_in(word, "failure")[:LONGEST_REPORT])
        try:
            key = _core.Secret.from_hex(text_in(word, "key"))
        except InvalidArgumentError as failure:
            raise RefusedWordError(str(failure)) from None
        _warn_of_open_store()
        return _Place(key, text_in(word, "rendezvous"))

    def raise_refusal(self) -> None:
        """Nobody can sign one."""


def _hello_in(word: dict[str, Any]) -> dict[str, str]:
    return {"host": text_in(word, "host"), "nonce": text_in(word, "nonce")}


def _listen_for_others(store: Any, hosts: Sequence[str]) -> tuple[socket.socket, str]:
    """A socket for ranks on several hosts, and where it listens. InvalidArgumentError where there can be none.
    `hosts`: the host_id() of every rank."""
    try:
        address = address_for_others(store)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family, backlog=max(512, len(hosts)))
    except InvalidArgumentError as failure:
        unknown = [str(rank) for rank, host in enumerate(hosts) if _core.is_unknown_host(host)]
        if not unknown:
            raise
        ranks = f"rank {unknown[0]}" if len(unknown) == 1 else f"ranks {', '.join(unknown)}"
        raise InvalidArgumentError(
            f"{ranks} cannot find out which host this is (/proc/sys/kernel/random/boot_id cannot be read), so ranks "
            f"of one host cannot be told from those of another: mount /proc where they run; and {failure}"
        ) from None
    except OSError as failure:  # No such name, no route, no permission.
        raise InvalidArgumentError(
            f"rank 0 cannot listen for the ranks of other hosts at the address that leads to the store: {failure}"
        ) from failure
    host = f"[{address}]" if family == socket.AF_INET6 else address
    return listener, f"tcp:{host}:{listener.getsockname()[1]}"


def _warn_of_open_store() -> None:
    warnings.warn(
        "the ranks of this process group are on several hosts and share no secret, so its key is in torch's store: "
        "anybody who can reach the store's port (MASTER_PORT) can read the key, take part in the training, and read "
        "and change its data. Start the job with `gyre run`, which makes a secret, or set GYRE_KEY_FILE on all ranks",
        RuntimeWarning,
        stacklevel=stacklevel_of_program(),
    )


def _join(
    place: _Place,
    rank: int,
    size: int,
    timeout: timedelta,
    timeline: bool,
    around: tuple[Sequence[int], int | None],
) -> _core.Runtime:
    return _core.join_at(
        rank=rank,
        size=size,
        rendezvous=place.rendezvous,
        key=place.key,
        listener=place.listener.fileno() if place.listener is not None else None,
        join_timeout_seconds=min(timeout.total_seconds(), LONGEST_JOIN_SECONDS),
        operation_timeout_seconds=timeout.total_seconds(),
        timeline=timeline,
        around=around,
    )
