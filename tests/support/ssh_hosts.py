"""An ssh server of our own on a high port, at several loopback addresses that play several hosts."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from machine import free_port

LONGEST_START_SECONDS = 30


@dataclass
class SshHosts:
    """`names`: addresses that it answers at. `command`: for `gyre run --ssh`. `port`, `identity`: for -p and -i."""

    names: list[str]
    command: str
    port: int
    identity: Path
    server: int  # Its process.


@contextlib.contextmanager
def ssh_hosts(folder: Path, count: int) -> Iterator[SshHosts]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    for name in ("server", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "client.pub", folder / "authorized")
    (folder / "authorized").chmod(0o600)
    port = free_port()
    names = [f"127.0.0.{number}" for number in range(2, 2 + count)]
    settings = [f"ListenAddress {name}:{port}" for name in names]
    settings += [
        f"HostKey {folder / 'server'}",
        f"AuthorizedKeysFile {folder / 'authorized'}",
        f"PidFile {folder / 'pid'}",
        "UsePAM no",
        "StrictModes no",
        "PasswordAuthentication no",
        "MaxStartups 100",
        f"AllowUsers {getpass.getuser()}",
    ]
    (folder / "sshd_config").write_text("\n".join(settings) + "\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # Where a server that runs as root keeps its children.
    server_key = (folder / "server.pub").read_text().split()
    known = "".join(f"[{name}]:{port} {server_key[0]} {server_key[1]}\n" for name in names)
    (folder / "known").write_text(known)
    (folder / "ssh_config").write_text(f"Host *\n  UserKnownHostsFile {folder / 'known'}\n  IdentitiesOnly yes\n")
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        _await(names, port, server, folder / "sshd.log")
        yield SshHosts(names, f"ssh -F {folder / 'ssh_config'}", port, folder / "client", server.pid)
    finally:
        server.terminate()
        server.wait()


def _await(names: list[str], port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers everywhere."""
    until = time.monotonic() + LONGEST_START_SECONDS
    for name in names:
        while True:
            assert server.poll() is None, log.read_text()
            try:
                socket.create_connection((name, port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
