"""Hosts whose every connection passes through an attacker, who has no key: network namespaces, each with a cable to a
namespace of the attacker's that bears the addresses of all the other hosts.

The namespaces have no names: they end with the processes in them. Linux, root, `ip`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
CHUNK = 64 * 1024
LOOK_EVERY_SECONDS = 0.005
LONGEST_HOLD_SECONDS = 1.0
# As /proc/net/tcp and tcp6 have them.
LISTENING = "0A"
LOOPBACKS = ("0100007F", "00000000000000000000000001000000")

ATTACKS = ("redirect", "cross", "replay", "answer", "repeat", "truncate", "reset", "flip", "delay", "swallow")


def enter(namespace: int) -> None:
    if LIBC.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def inside(namespace: int) -> Iterator[None]:
    """The calling thread, and what it starts, is on that host."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        enter(namespace)
        try:
            yield
        finally:
            enter(home)
    finally:
        os.close(home)


def new_namespace() -> int:
    """Its descriptor, which keeps it alive."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if LIBC.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        try:
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            enter(home)
    finally:
        os.close(home)


def ip(namespace: int, *lines: str) -> None:
    with inside(namespace):
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True, timeout=30)


def address(host: int) -> str:
    return f"10.78.0.{host + 1}"


@dataclass
class Attack:
    """What is done to one connection. `forward`: to what its connector sends, otherwise to what it receives."""

    kind: str
    forward: bool
    offset: int
    bit: int

    def __str__(self) -> str:
        side = "sent" if self.forward else "received"
        return f"{self.kind} after {self.offset} bytes {side} (bit {self.bit})"


@dataclass
class Connection:
    source: int
    target: int
    port: int
    client: socket.socket
    attack: Attack | None
    heard: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))  # Forward, back.


def draw_attack(generator: random.Random) -> Attack:
    # As often in the handshake as in what follows.
    offset = int(2 ** generator.uniform(0, 20)) - 1
    return Attack(generator.choice(ATTACKS), generator.random() < 0.5, offset, generator.randrange(8))


class HostileNetwork:
    def __init__(self, hosts: int) -> None:
        self.hosts = hosts
        self._places = [new_namespace() for _ in range(hosts)]
        self._between = [new_namespace() for _ in range(hosts)]
        for host, (place, between) in enumerate(zip(self._places, self._between, strict=True)):
            others = [address(other) for other in range(hosts) if other != host]
            ip(
                place,
                "link set lo up",
                f"link add eth0 type veth peer name port netns /proc/{os.getpid()}/fd/{between}",
                "link set eth0 up",
                f"address add {address(host)}/24 dev eth0",
            )
            ip(
                between,
                "link set lo up",
                "link set port up",
                *(f"address add {other}/32 dev port" for other in others),
                f"route add {address(host)}/32 dev port",
            )

    def close(self) -> None:
        for namespace in (*self._places, *self._between):
            os.close(namespace)

    def __enter__(self) -> HostileNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on(self, host: int) -> contextlib.AbstractContextManager[None]:
        """While it lasts, what the calling thread starts is there."""
        return inside(self._places[host])

    def start(
        self, host: int, command: Sequence[str], environment: Mapping[str, str], output: BinaryIO
    ) -> subprocess.Popen[bytes]:
        with self.on(host):
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @contextlib.contextmanager
    def attacked(
        self, choose: Callable[[int], Attack | None], processes: Mapping[int, int], generator: random.Random
    ) -> Iterator[Attacker]:
        """While it lasts, connections between the hosts pass; `choose(number)` says what is done to which, in the order
        in which they come. `processes`: one of each host, which may be added while it lasts."""
        attacker = Attacker(self._places, self._between, choose, processes, generator)
        thread = threading.Thread(target=attacker.run, name="attacker")
        thread.start()
        try:
            yield attacker
        finally:
            attacker.stop()
            thread.join()


class Attacker:
    def __init__(
        self,
        places: Sequence[int],
        between: Sequence[int],
        choose: Callable[[int], Attack | None],
        processes: Mapping[int, int],
        generator: random.Random,
    ) -> None:
        self.attacks: list[str] = []  # What was done, in words.
        self.failure: BaseException | None = None
        self._places = places
        self._between = between
        self._choose = choose
        self._processes = processes
        self._random = generator
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._open: dict[tuple[int, int], list[socket.socket]] = {}  # By host and port: where we listen for it.
        self._tasks: set[asyncio.Task[None]] = set()
        self._past: list[Connection] = []
        self._crossing: list[tuple[Connection, asyncio.Future[tuple[int, int]]]] = []
        self._count = 0

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._watch())
        except BaseException as failure:
            self.failure = failure
        finally:
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            self._loop.close()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # It has failed, and the loop is closed.
            self._loop.call_soon_threadsafe(self._over.set)

    async def _watch(self) -> None:
        while not self._over.is_set():
            for host, process in list(self._processes.items()):
                for port in listening_ports(process):
                    if (host, port) not in self._open:
                        self._pretend_to_be(host, port)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), LOOK_EVERY_SECONDS)
        for sockets in self._open.values():
            for listener in sockets:
                listener.close()

    def _pretend_to_be(self, host: int, port: int) -> None:
        sockets = self._open[host, port] = []
        for source, between in enumerate(self._between):
            if source == host:
                continue
            with inside(between):
                listener = socket.create_server((address(host), port), backlog=100)
            listener.setblocking(False)
            sockets.append(listener)
            self._keep(self._accept(source, host, port, listener))

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, source: int, target: int, port: int, listener: socket.socket) -> None:
        while True:
            client, _ = await self._loop.sock_accept(listener)
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(source, target, port, client, self._choose(self._count))
            if connection.attack is not None:
                self.attacks.append(f"connection {self._count}, {source} to {target}:{port}: {connection.attack}")
            self._count += 1
            self._keep(self._serve(connection))

    async def _serve(self, connection: Connection) -> None:
        server: socket.socket | None = None
        try:
            attack = connection.attack
            if attack is not None and attack.kind == "answer" and await self._answer_from_memory(connection):
                return
            server = await self._connect(connection.source, *await self._destination(connection))
            self._past.append(connection)
            flows = [
                self._loop.create_task(self._pass_on(connection, connection.client, server, forward=True)),
                self._loop.create_task(self._pass_on(connection, server, connection.client, forward=False)),
            ]
            try:
                await asyncio.gather(*flows)
            finally:
                for flow in flows:
                    flow.cancel()
                await asyncio.gather(*flows, return_exceptions=True)
            if attack is not None and attack.kind == "replay":
                await self._replay(connection)
        except OSError:
            pass  # One end has closed, or we have: so the other one sees it as well.
        finally:
            connection.client.close()
            if server is not None:
                server.close()

    async def _destination(self, connection: Connection) -> tuple[int, int]:
        right = (connection.target, connection.port)
        kind = connection.attack.kind if connection.attack else ""
        if kind == "redirect":
            others = [place for place in self._open if place != right and place[0] != connection.source]
            return self._random.choice(others) if others else right
        if kind != "cross":
            return right
        for other, chosen in self._crossing:
            if not chosen.done():
                chosen.set_result(right)
                return other.target, other.port
        chosen = self._loop.create_future()
        self._crossing.append((connection, chosen))
        try:
            return await asyncio.wait_for(chosen, LONGEST_HOLD_SECONDS)
        except TimeoutError:
            return right

    async def _connect(self, source: int, target: int, port: int) -> socket.socket:
        with inside(self._between[target]):
            server = socket.socket()
        server.setblocking(False)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source != target:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Its port may be one that we shall listen at.
            server.bind((address(source), 0))  # As the host itself would.
        try:
            await self._loop.sock_connect(server, (address(target), port))
        except BaseException:
            server.close()
            raise
        return server

    async def _pass_on(
        self, connection: Connection, source: socket.socket, target: socket.socket, *, forward: bool
    ) -> None:
        attack = connection.attack if connection.attack and connection.attack.forward == forward else None
        heard = connection.heard[0 if forward else 1]
        passed = 0
        while data := await self._loop.sock_recv(source, CHUNK):
            if len(heard) < CHUNK:
                heard += data
            if attack is not None and passed <= attack.offset < passed + len(data):
                data = await self._tamper(attack, target, data, attack.offset - passed)
            elif attack is not None and attack.kind == "delay":
                await asyncio.sleep(self._random.uniform(0, 0.02))
            passed += len(data)
            await self._loop.sock_sendall(target, data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    async def _tamper(self, attack: Attack, target: socket.socket, data: bytes, at: int) -> bytes:
        """The data as they go on; OSError when the connection ends here."""
        if attack.kind == "flip":
            changed = bytearray(data)
            changed[at] ^= 1 << attack.bit
            return bytes(changed)
        if attack.kind == "repeat":
            return data + data[at:]
        if attack.kind == "delay":
            await self._loop.sock_sendall(target, data[:at])
            await asyncio.sleep(self._random.uniform(0, 1))
            return data[at:]
        if attack.kind in ("truncate", "reset"):
            await self._loop.sock_sendall(target, data[:at])
            if attack.kind == "reset":
                target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            raise ConnectionAbortedError
        if attack.kind == "swallow":
            await self._loop.sock_sendall(target, data[:at])
            await self._over.wait()
        return data

    async def _replay(self, connection: Connection) -> None:
        """What the connector has said once is said again, to the same acceptor."""
        with contextlib.suppress(OSError, TimeoutError):
            server = await self._connect(connection.source, connection.target, connection.port)
            with server:
                await self._loop.sock_sendall(server, bytes(connection.heard[0]))
                await asyncio.wait_for(self._loop.sock_recv(server, CHUNK), LONGEST_HOLD_SECONDS)

    async def _answer_from_memory(self, connection: Connection) -> bool:
        """An acceptor's former words, as an answer to a new connection; False when there are none yet."""
        past = [other for other in self._past if other.heard[1] and other.target == connection.target]
        if not past:
            return False
        await self._loop.sock_sendall(connection.client, bytes(self._random.choice(past).heard[1]))
        while await self._loop.sock_recv(connection.client, CHUNK):
            pass
        return True


def listening_ports(process: int) -> set[int]:
    """Of the process's host, but for those that only the host itself reaches."""
    ports = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{process}/net/{name}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            return set()  # It has ended.
        for line in lines:
            _, local, _, state = line.split()[:4]
            where, port = local.split(":")
            if state == LISTENING and where not in LOOPBACKS:
                ports.add(int(port, 16))
    return ports
