"""torch's own rendezvous for the backend gyre: finds what launchers do not set for torch, and ends waits for ranks that
can no longer arrive.

torch's `env://` wants RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; mpirun, mpiexec and srun describe a rank in
variables of their own.

The rendezvous waits in torch's store until all ranks are there, before it calls any backend, up to a time limit of its
own (30 minutes, unless the script sets another). Only `gyre run` knows that a rank's program has ended, and records it
in a memory file (GYRE_ENDED_FD, docs/guide/launchers.md).
"""

from __future__ import annotations

import functools
import math
import os
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlparse

from gyre._program_position import stacklevel_of_program
from gyre.errors import InvalidArgumentError, PeerLostError, TimeoutError

# How often a waiting rank checks. All of them do, and the launcher kills the last of them soon after the first one has
# failed: each should have reported the reason by then.
LOOK_SECONDS = 0.05
FIRST_PAUSE_SECONDS = 0.001
CONNECT_SECONDS = 2.0
NOTE_SECONDS = 5.0  # When a waiting rank says what it waits for.
LONGEST_WAIT = timedelta(minutes=30)  # torch's own default.
MOST_BYTES = 1 << 20
SCHEMES = ("env", "tcp")
SET_TORCHS_VARIABLES = ("gyre", "torchrun")  # Launchers that do: torch reports what is missing.
LOOPBACK = "127.0.0.1"

Result = TypeVar("Result")
Handler = Callable[..., Iterator[Any]]


def extend_rendezvous() -> None:
    """For the backend gyre, makes torch's own rendezvous find the ranks of other launchers (`env://`), and under `gyre
    run` end early (`env://`, `tcp://`). Call it once. If torch keeps its handlers elsewhere, both stay as torch has
    them."""
    from gyre._torch_private import rendezvous_handlers  # noqa: PLC0415  It needs torch; the launcher's side does not.

    handlers = rendezvous_handlers()
    if "GYRE_ENDED_FD" in os.environ:
        for scheme in SCHEMES:
            if scheme in handlers:
                handlers[scheme] = _watched(handlers[scheme])
    if "env" in handlers:
        handlers["env"] = _with_launcher(handlers["env"])


def _with_launcher(handler: Handler) -> Handler:
    @functools.wraps(handler)
    def gather(url: str, **options: Any) -> Iterator[Any]:
        place = _place_by_launcher(url) if _is_for_gyre() else None
        if place is None:
            yield from handler(url, **options)
            return
        from gyre._runtime import refuse_second_import  # noqa: PLC0415  The engine is loaded when it is needed.

        refuse_second_import()
        yield _store_by_launcher(place, options.get("timeout", LONGEST_WAIT)), place.rank, place.size

    return gather


def _place_by_launcher(url: str) -> Any | None:
    """This process's place as its launcher describes it, or as the only rank where there is none, if torch does not
    find all that it wants, and neither the script nor the environment says otherwise. InvalidArgumentError as
    gyre.torch.init()."""
    query = parse_qs(urlparse(url).query)
    given = [
        query.get(key, [os.environ.get(name, "")])[0] for key, name in (("rank", "RANK"), ("world_size", "WORLD_SIZE"))
    ]
    address = [os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")]
    by_script = "rank" in query or "world_size" in query
    if by_script and all((*given, *address)):
        return None
    from gyre.core import _core  # noqa: PLC0415  As above.

    place = _core.launched_place()  # Also where torch finds all: other launchers may contradict it.
    if all((*given, *address)) or place.launcher in SET_TORCHS_VARIABLES:
        return None
    if place.launcher == "none" and any(address):
        return None  # Somebody means several ranks; torch says what it misses.
    contradict = (word not in ("", str(own)) for word, own in zip(given, (place.rank, place.size), strict=True))
    return None if any(contradict) else place


def _store_by_launcher(place: Any, timeout: timedelta) -> Any:
    """torch's store. Returns on rank 0 of one host when all other ranks have found it."""
    import torch.distributed as dist  # noqa: PLC0415  As torch itself, above.

    from gyre.core import _core  # noqa: PLC0415

    own = place.rank == 0
    host, port, meeting = LOOPBACK, 0, ""
    if place.size > 1:
        found = _core.store_place()
        host, port, meeting = found.host or LOOPBACK, found.port, found.meeting_name
    limit = start_limit(timeout)
    if meeting and not own:
        port = _core.fetch_port(meeting, place.rank, limit)
    open_store: Any = getattr(dist, "TCPStore")  # noqa: B009  Not in the stubs.
    store = open_store(host, port, place.size, own, timeout, wait_for_workers=not meeting, multi_tenant=True)
    if meeting and own:
        _core.hand_out_port(meeting, place.size, store.port, limit)
    return store


def start_limit(timeout: timedelta) -> float:
    """Seconds that ranks wait for each other at the start: the script's limit, or GYRE_START_TIMEOUT_SECONDS if that is
    shorter."""
    text = os.environ.get("GYRE_START_TIMEOUT_SECONDS", "")
    if not text:
        return timeout.total_seconds()
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgumentError(f"GYRE_START_TIMEOUT_SECONDS is '{text}'; a number of at least 1 is needed")
    return min(timeout.total_seconds(), float(text))


def _watched(handler: Handler) -> Handler:
    @functools.wraps(handler)
    def gather(url: str, **options: Any) -> Iterator[Any]:
        if not _is_for_gyre():
            _warn_of_another_backend()
            yield from handler(url, **options)
            return
        # Before rank 0's child finds the address of its parent's store in use.
        from gyre._runtime import refuse_second_import  # noqa: PLC0415  The engine is loaded when it is needed.

        refuse_second_import()
        limit = start_limit(options.get("timeout", LONGEST_WAIT))
        iterator = handler(url, **{**options, "timeout": timedelta(seconds=limit)})
        place = _place_in(url)
        ranks = launchers_ranks(place.world_size) if place is not None else ()
        if place is None:
            yield next(iterator)
        elif not ranks:
            _warn_of_more_ranks(place)
            yield _with_own_store(place, functools.partial(next, iterator))
        elif place.rank == 0:
            # Its store waits until all ranks have come.
            opened = functools.partial(_wait_beside, functools.partial(next, iterator), ranks, _Wait(place, limit))
            yield _with_own_store(place, opened)
        else:
            # Their stores wait for rank 0's, and for nothing else.
            _Wait(place, limit).for_rank_0(ranks)
            yield next(iterator)
        yield from iterator

    return gather


def _warn_of_another_backend() -> None:
    """Under `gyre explain`, which reports on what Gyre exchanges."""
    from gyre._torch_private import backend_being_initialised  # noqa: PLC0415

    backend = backend_being_initialised()
    if "GYRE_EXPLAIN_FILE" in os.environ and os.environ.get("RANK") == "0":
        warnings.warn(
            f"`gyre explain` has nothing to report on: this program's backend is {backend or 'chosen by torch'}; try "
            'init_process_group("gyre")',
            RuntimeWarning,
            stacklevel=stacklevel_of_program(),
        )


def _is_for_gyre() -> bool:
    """Whether the group to be made names Gyre among its backends: other groups use torch's own rendezvous."""
    from gyre._torch_private import backend_being_initialised  # noqa: PLC0415

    return "gyre" in re.split("[:,]", (backend_being_initialised() or "").lower())


@dataclass(frozen=True)
class _Place:
    rank: int
    world_size: int
    host: str
    port: int

    def why_unreachable(self) -> str:
        """Empty if rank 0's store is there."""
        try:
            socket.create_connection((self.host, self.port), CONNECT_SECONDS).close()
        except OSError as failure:
            return self.why_unknown() or str(failure.strerror or failure)
        return ""

    def why_unknown(self) -> str:
        """Empty if the address is a name that can be resolved, or a number."""
        try:
            socket.getaddrinfo(self.host, self.port)
        except OSError as failure:
            return f"the host name cannot be resolved ({failure.strerror})"
        return ""


class _Wait:
    """A rank's wait for others at the start, of which it tells the user."""

    def __init__(self, place: _Place, limit: float) -> None:
        self._place = place
        self._limit = limit
        self._note_at = time.monotonic() + min(NOTE_SECONDS, limit / 2)
        self._reason = ""

    def for_rank_0(self, ranks: Sequence[int]) -> None:
        """TimeoutError at the limit; else as wait_until()."""
        wait_until(self._has_come, ranks, time.monotonic() + self._limit)
        if self._reason:
            raise TimeoutError(f"{self._what()}, and gave up after {self._limit:g} s")

    def note(self) -> None:
        """Warns when it is time to."""
        if time.monotonic() < self._note_at:
            return
        self._note_at = math.inf
        if self._place.rank == 0:
            self._reason = self._place.why_unknown()
        text = f"{self._what()}; it waits for up to {self._limit:g} s (GYRE_START_TIMEOUT_SECONDS)"
        warnings.warn(text, RuntimeWarning, stacklevel=stacklevel_of_program())

    def gave_up(self, failure: RuntimeError) -> TimeoutError | None:
        """For rank 0, after its store has ended the wait."""
        if "timed out" not in str(failure).lower():
            return None
        self._reason = self._place.why_unknown()
        return TimeoutError(f"{self._what()}, and gave up after {self._limit:g} s ({str(failure).splitlines()[0]})")

    def _has_come(self) -> bool:
        self._reason = self._place.why_unreachable()
        if self._reason:
            self.note()
        return not self._reason

    def _what(self) -> str:
        place = self._place
        whom = "the other ranks" if place.rank == 0 else "rank 0"
        text = f"rank {place.rank} of {place.world_size} has waited in init_process_group() for {whom} "
        text += f"at {place.host}:{place.port}"
        return f"{text}: {self._reason}" if self._reason else text


def _place_in(url: str) -> _Place | None:
    """As torch will read it; None if it is invalid, which torch will report."""
    parts = urlparse(url)
    query = parse_qs(parts.query)
    words = [
        query.get("rank", [os.environ.get("RANK", "")])[0],
        query.get("world_size", [os.environ.get("WORLD_SIZE", "")])[0],
        str(parts.port) if parts.scheme == "tcp" else os.environ.get("MASTER_PORT", ""),
    ]
    host = parts.hostname if parts.scheme == "tcp" else os.environ.get("MASTER_ADDR")
    if not host or not all(word.isdecimal() for word in words):
        return None
    rank, world_size, port = map(int, words)
    return _Place(rank, world_size, host, port)


def _started_ranks() -> int | None:
    """How many ranks `gyre run` has started to run the script, which parameter servers do not. None if unknown, and
    under a torchrun that a rank has started, whose ranks `gyre run` does not know."""
    from gyre.core import _core  # noqa: PLC0415  As above.

    if not _core.is_started_by_gyre_run():
        return None
    size, servers = os.environ.get("GYRE_SIZE", ""), os.environ.get("GYRE_SERVERS", "0")
    return int(size) - int(servers) if size.isdecimal() and servers.isdecimal() else None


def _warn_of_more_ranks(place: _Place) -> None:
    """More ranks than the launcher has started: torch would wait for them for half an hour, silently."""
    started = _started_ranks()
    if started is not None and place.world_size > started:
        warnings.warn(
            f"init_process_group() waits for {place.world_size} ranks, and `gyre run` has started {started}: leave out "
            "world_size and rank, which it sets, or start as many",
            RuntimeWarning,
            stacklevel=stacklevel_of_program(),
        )


def _with_own_store(place: _Place, wait: Callable[[], Result]) -> Result:
    """wait(), which opens the store if this is rank 0. If another process has already opened it, likely reasons are
    added to torch's exception."""
    try:
        return wait()
    except RuntimeError as failure:
        if place.rank != 0 or "EADDRINUSE" not in str(failure):
            raise
        raise type(failure)(
            f"another process listens at rank 0's address, {place.host}:{place.port}, already: another program, or a "
            "rank that calls itself rank 0 in init_process_group(), as this one does (for `gyre run` it is rank "
            f"{os.environ.get('GYRE_RANK', 'unknown')}); leave out rank and world_size, which `gyre run` sets, "
            f"or choose another port ({failure})"
        ) from failure


def launchers_ranks(world_size: int, members: Sequence[int] = ()) -> Sequence[int]:
    """The launcher's numbers of `members` of torch's world (all, if none are named). Empty if the world is not the
    whole job (then only its creator knows its ranks), or no launcher reports which ranks have ended."""
    if "GYRE_ENDED_FD" not in os.environ or world_size != _started_ranks():
        return ()
    return members or range(world_size)


def wait_until(come: Callable[[], bool], ranks: Sequence[int], until: float) -> None:
    """Returns when come() is true, or at `until`. come() needs all of `ranks` (the launcher's numbers): PeerLostError
    when one of them has ended with exit code 0."""
    pause = FIRST_PAUSE_SECONDS
    while time.monotonic() < until:
        try:
            if come():
                return
        except RuntimeError:  # torch's: its store disappeared with a rank that gave up a moment earlier.
            _give_up_without(ranks)
            raise
        _give_up_without(ranks)
        time.sleep(pause)
        pause = min(2 * pause, LOOK_SECONDS)


def _wait_beside(wait: Callable[[], Result], ranks: Sequence[int], waiting: _Wait) -> Result:
    """wait(), which would never return once one of `ranks` has ended: then PeerLostError, and wait() stays behind on a
    thread of its own, because torch's waits cannot be interrupted. It must not return later: a thread that re-enters an
    interpreter that is shutting down would abort the process."""
    results: list[Result] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(wait())
        except BaseException as failure:  # Raised again by the calling thread.
            failures.append(failure)
        done.set()

    # A daemon: the process need not wait for it.
    threading.Thread(target=run, name="gyre-gathering", daemon=True).start()
    while not done.wait(LOOK_SECONDS):
        waiting.note()
        # The rank that has ended may have been the last one to arrive: then the wait ends by itself.
        if ended_rank(ranks) is not None and not done.wait(LOOK_SECONDS):
            _give_up_without(ranks)
    if not failures:
        return results[0]
    if isinstance(failures[0], RuntimeError) and (told := waiting.gave_up(failures[0])) is not None:
        raise told from failures[0]
    raise failures[0]


def ended_rank(ranks: Sequence[int]) -> str | None:
    """The launcher's line about the first of `ranks` that has ended with exit code 0; None while there is none."""
    text = os.environ.get("GYRE_ENDED_FD", "")
    if not text.isdecimal():
        return None
    try:
        notes = os.pread(int(text), MOST_BYTES, 0).decode(errors="replace")
    except OSError:  # Closed by a program between `gyre run` and this process.
        return None
    found = re.finditer(r"^rank (\d+) \(host .*\n", notes, re.MULTILINE)
    return next((match[0].strip() for match in found if int(match[1]) in ranks), None)


def _give_up_without(ranks: Sequence[int]) -> None:
    line = ended_rank(ranks)
    if line is not None:
        raise PeerLostError(
            f"{line} and can no longer join, so the ranks can never gather; every rank's program must call "
            "init_process_group() (or new_group()) before it ends"
        )
