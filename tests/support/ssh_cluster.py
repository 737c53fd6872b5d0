"""Hosts with ssh servers of their own on this machine, each with an address, a host key and a local folder of its own.

A host's FOLDER/local, in a mount namespace of its sshd, is FOLDER/nodes/NAME for everybody else.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from machine import free_port

LONGEST_START_SECONDS = 30


@dataclass
class SshCluster:
    """`config`: of ssh, which knows the hosts by `names`. `variables`: that logins have there. `settings`: lines
    for each sshd that is started, before ours. `run_on`: how a command line runs on the host of that number."""

    folder: Path
    names: list[str]
    ports: dict[str, int]
    config: Path
    addresses: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    settings: list[str] = field(default_factory=list)
    run_on: Callable[[int, list[str]], list[str]] = lambda _, command: command
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def local(self, name: str) -> Path:
        """What the host has at FOLDER/local."""
        return self.folder / "nodes" / name

    def fingerprint(self, name: str) -> str:
        key = self.folder / f"host-{name}.pub"
        listed = subprocess.run(["ssh-keygen", "-l", "-f", str(key)], check=True, capture_output=True, text=True)
        return listed.stdout.split()[1]

    def host_keys(self) -> str:
        """As `driverOptions.host_keys` has them."""
        return ", ".join(f"{name} {self.fingerprint(name)}" for name in self.names)

    def driver_options(self, **options: str) -> dict[str, str]:
        """Of a cluster of these hosts; `options` in place of those that are right, or next to them."""
        right = {
            "hosts": ", ".join(self.names),
            "host_keys": self.host_keys(),
            "ssh_config": str(self.config),
            "node_folder": str(self.folder / "local"),
            "address": "127.0.0.1",
            "lease_seconds": "5",
        }
        return {**right, **options}

    def write_cluster(self, folder: Path, share: Path, **options: str) -> Path:
        """A file for `gyre cluster create`, with jobs that run on the hosts themselves."""
        settings = {
            "driver": "ssh",
            "driverOptions": self.driver_options(**options),
            "mounts": {"external": str(share)},
            "containers": "host",
        }
        file = folder / "cluster.json"
        file.write_text(json.dumps({"properties": {"gyreSettings": settings}}))
        return file

    def make_host_key(self, name: str) -> None:
        key = self.folder / f"host-{name}"
        for file in (key, key.with_suffix(".pub")):
            file.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)

    def start(self, name: str) -> None:
        number = self.names.index(name)
        variables = {"XDG_CACHE_HOME": str(self.folder / "local" / "cache"), **self.variables}
        settings = [
            *self.settings,
            f"ListenAddress {self.addresses[number]}:{self.ports[name]}",
            f"HostKey {self.folder / f'host-{name}'}",
            f"AuthorizedKeysFile {self.folder / 'authorized'}",
            f"PidFile {self.folder / f'{name}.pid'}",
            "SetEnv " + " ".join(f"{variable}={value}" for variable, value in variables.items()),
            "UsePAM no",
            "StrictModes no",
            "PasswordAuthentication no",
            "MaxStartups 100",
            f"AllowUsers {getpass.getuser()}",
        ]
        file = self.folder / f"sshd-{name}"
        file.write_text("\n".join(settings) + "\n")
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        line = f'mount --bind "{self.local(name)}" "{self.folder}/local" && exec {sshd} -D -e -f "{file}"'
        log = self.folder / f"{name}.log"
        begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as words:
            command = self.run_on(number, ["unshare", "--mount", "sh", "-c", line])
            self.servers[name] = subprocess.Popen(command, stderr=words)
        until = time.monotonic() + LONGEST_START_SECONDS
        while b"Server listening on" not in log.read_bytes()[begin:]:
            assert self.servers[name].poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.02)

    def stop(self, name: str) -> None:
        """The server; connections that it has stay."""
        self.servers[name].terminate()
        self.servers.pop(name).wait()


@contextlib.contextmanager
def ssh_cluster(
    folder: Path,
    hosts: int,
    variables: dict[str, str] | None = None,
    addresses: list[str] | None = None,
    run_on: Callable[[int, list[str]], list[str]] = lambda _, command: command,
) -> Iterator[SshCluster]:
    """`addresses`: of the hosts, where they are on other networks than this machine's; `run_on` as in SshCluster."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / "local").mkdir()
    names = [f"h{number}" for number in range(1, hosts + 1)]
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "client")], check=True)
    shutil.copy(folder / "client.pub", folder / "authorized")
    (folder / "authorized").chmod(0o600)
    where = addresses or [f"127.0.0.{2 + number}" for number in range(hosts)]
    ports = {name: free_port() for name in names}
    cluster = SshCluster(folder, names, ports, folder / "ssh_config", where, variables or {}, run_on=run_on)
    lines = []
    for number, name in enumerate(names):
        lines += [f"Host {name}", f"  HostName {where[number]}", f"  Port {cluster.ports[name]}"]
    lines += ["Host *", f"  IdentityFile {folder / 'client'}", "  IdentitiesOnly yes"]
    cluster.config.write_text("\n".join(lines) + "\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # Where a server that runs as root keeps its children.
    try:
        for name in names:
            cluster.local(name).mkdir(parents=True)
            cluster.make_host_key(name)
            cluster.start(name)
        yield cluster
    finally:
        for name in list(cluster.servers):
            cluster.stop(name)
