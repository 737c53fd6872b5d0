"""Logging in to workers: one ssh server for each of them, with keys made for the session."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PORT = 2222  # That of the platform whose API this is; scripts have it in their command lines.
_SETTINGS = """\
HostKey {folder}/server
AuthorizedKeysFile {folder}/authorized
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
PrintMotd no
PrintLastLog no
AllowUsers {user}
Subsystem sftp internal-sftp
"""
_CLIENT = """\
Host {hosts}
  Port {port}
  User {user}
  IdentityFile {folder}/client
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking yes
  ForwardX11 no
Match all
Include ~/.ssh/config
Include /etc/ssh/ssh_config
"""


def find_server() -> str | None:
    """The ssh server's program, by its whole path, as it insists; None if a program of OpenSSH is missing."""
    server = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
    return server if server and shutil.which("ssh") and shutil.which("ssh-keygen") else None


class SshAccess:
    """Keys, and an `ssh` that knows them. `folder`: private to the session, and empty. `network`: such as
    "127.70.3.", with which the addresses of the workers begin."""

    def __init__(self, folder: Path, network: str, server: str) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder
        self._server = server
        self.port = _free_port(f"{network}2")
        for name in ("server", "client"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gyre-workers", "-f", str(folder / name)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        shutil.copy(folder / "client.pub", folder / "authorized")
        kind, key = (folder / "server.pub").read_text().split()[:2]
        (folder / "known").write_text("".join(f"{host} {kind} {key}\n" for host in (f"[{network}*]:*", f"{network}*")))
        user = getpass.getuser()
        (folder / "sshd_config").write_text(_SETTINGS.format(folder=folder, user=user))
        hosts = f"{network}*"
        (folder / "ssh_config").write_text(_CLIENT.format(folder=folder, user=user, hosts=hosts, port=self.port))
        self.programs = folder / "bin"
        self.programs.mkdir()
        program = self.programs / "ssh"
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        program.chmod(0o700)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(
                mode=0o755, exist_ok=True
            )  # Where a server that runs as root locks its children in.

    @property
    def command(self) -> str:
        """For `gyre run --ssh`, and for logging in by hand."""
        return f"ssh -F {self._folder}/ssh_config"

    def order(self, worker: str, address: str, variables: Mapping[str, str]) -> dict[str, Any]:
        """The keeper's part of it. `variables`: for what is started through ssh."""
        options = ["-D", "-e", "-f", str(self._folder / "sshd_config"), "-o", f"ListenAddress {address}:{self.port}"]
        return {
            "command": [self._server, *options],
            "variables": dict(variables),
            "address": address,
            "port": self.port,
            "log": str(self._log(worker)),
        }

    def log_of(self, worker: str) -> str:
        """The last line that the worker's server has written, which says why it ended."""
        try:
            return self._log(worker).read_text(errors="replace").strip().rpartition("\n")[2]
        except OSError:
            return "its server did not start"

    def _log(self, worker: str) -> Path:
        return self._folder / f"{worker}.log"


def _free_port(address: str) -> int:
    """PORT, unless another server of this machine has it on all addresses."""
    for port in (PORT, 0):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((address, port))
                return int(trial.getsockname()[1])
            except OSError:
                continue
    return PORT
