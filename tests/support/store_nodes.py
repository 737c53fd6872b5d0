"""The nodes of a store: daemons that tests start, kill and read through."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

START_SECONDS = 60.0
READ_SECONDS = 120.0


def free_ports(count: int) -> list[int]:
    """Different ones, that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


class StoreNodes:
    """A store of `count` nodes, each with a folder of its own. Ends its daemons; keeps the folders.

    `prefixes` are the first words of each node's command lines, to start it on a simulated host, `addresses` where the
    others reach it.
    """

    def __init__(
        self,
        gyre: Path,
        folder: Path,
        count: int,
        source: str,
        *words: str,
        addresses: Sequence[str] = (),
        prefixes: Sequence[Sequence[str]] = (),
    ) -> None:
        self.gyre = gyre
        self.folder = folder
        self.count = count
        self.source = source
        self.words = words
        self.prefixes = prefixes or [[]] * count
        addresses = addresses or ["127.0.0.1"] * count
        self.endpoints = [f"tcp:{address}:{port}" for address, port in zip(addresses, free_ports(count), strict=True)]
        self.nodes = self.named(range(count))
        self.daemons: dict[int, subprocess.Popen[str]] = {}
        self.key_file = folder / "key"
        self.key_file.write_text(secrets.token_hex(32) + "\n")
        self.key_file.chmod(0o600)

    def __enter__(self) -> StoreNodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in list(self.daemons):
            self.end(node, signal.SIGKILL)

    def named(self, nodes: Sequence[int]) -> str:
        """These as --nodes takes them."""
        return ",".join(f"{node}={self.endpoints[node]}" for node in nodes)

    def store_dir(self, node: int) -> Path:
        return self.folder / f"node{node}"

    def start(self, *nodes: int, key_file: Path | None = None, members: str = "") -> None:
        """These, or all; returns when each of them serves."""
        for node in nodes or range(self.count):
            command = [
                *self.prefixes[node], str(self.gyre), "store", "serve", "--store-dir", str(self.store_dir(node)),
                "--node", str(node), "--nodes", members or self.nodes, "--key-file", str(key_file or self.key_file),
                *self.words, self.source,
            ]  # fmt: skip
            with (self.folder / f"log{node}").open("a") as log:
                self.daemons[node] = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
                )
        for node in nodes or range(self.count):
            output = self.daemons[node].stdout
            assert output is not None
            ready = output.readline()
            assert ready.startswith(f"node {node} of "), self.log(node)

    def end(self, node: int, with_signal: signal.Signals = signal.SIGTERM) -> int:
        daemon = self.daemons.pop(node)
        daemon.send_signal(with_signal)
        code = daemon.wait(timeout=START_SECONDS)
        if daemon.stdout is not None:
            daemon.stdout.close()
        return code

    def log(self, node: int) -> str:
        return (self.folder / f"log{node}").read_text()

    def ask(self, node: int, verb: str, *words: str) -> bytes:
        done = self._run(node, verb, *words)
        assert done.returncode == 0, done.stderr.decode() + self.log(node)
        return done.stdout

    def set_members(self, node: int, members: Sequence[int]) -> None:
        """A node that has just started tells the others of its own list: then the command asks to be given again."""
        for _ in range(3):
            done = self._run(node, "members", "--set", self.named(members))
            if b"give the same command again" not in done.stderr:
                break
        assert done.returncode == 0, done.stderr.decode() + self.log(node)

    def _run(self, node: int, verb: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.prefixes[node], str(self.gyre), "store", verb, "--store-dir", str(self.store_dir(node)), *words],
            capture_output=True,
            timeout=READ_SECONDS,
            check=False,
        )

    def read(self, node: int, *names: str) -> bytes:
        """The contents of these files, one after the other."""
        return self.ask(node, "cat", *names)

    def status(self, node: int) -> dict[str, Any]:
        status = json.loads(self.ask(node, "status"))
        assert isinstance(status, dict)
        return status

    def total(self, fact: str) -> int:
        return sum(int(self.status(node)[fact]) for node in self.daemons)

    def wait_until(self, node: int, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + READ_SECONDS
        while not holds(status := self.status(node)):
            assert time.monotonic() < deadline, f"{status} {self.log(node)}"
            time.sleep(0.05)
        return status

    def wait_until_fetched(self) -> None:
        """Until every node has what it owns."""
        for node in self.daemons:
            self.wait_until(node, lambda status: not status["fetching_ahead"])

    def chunk_files(self, node: int) -> list[Path]:
        return sorted(path for path in self.store_dir(node).glob("store/chunks/*/*") if path.is_file())


def read_all(nodes: StoreNodes, node: int, files: dict[str, bytes]) -> None:
    names = sorted(files)
    assert nodes.read(node, *names) == b"".join(files[name] for name in names), nodes.log(node)


def nothing_runs(nodes: StoreNodes) -> bool:
    """No process has a folder of the store in its arguments or among its open files."""
    text = str(nodes.folder).encode()
    own = os.getpid()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == own:
            continue
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if text in words and b"serve" in words:
            return False
    return True
