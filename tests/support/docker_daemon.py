"""A docker daemon of a test's own, with a socket and folders of its own, which leaves the machine's network alone."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

LONGEST_START_SECONDS = 60


def why_no_docker() -> str:
    """Why this machine cannot run it; empty: it can."""
    if os.geteuid() != 0:
        return "a docker daemon needs root"
    missing = [name for name in ("docker", "dockerd", "containerd", "runc") if shutil.which(name) is None]
    return f"there is no {', '.join(missing)}: apt-get install docker.io" if missing else ""


class DockerStorage:
    """As images.Storage: where the nodes of a server keep images and containers, if docker starts these."""

    def __init__(self, folder: Path, inside: Path | None = None, prefix: Sequence[str] = ()) -> None:
        """`prefix`: of the daemon's command, where that is to run on a host that has the folder at `inside`."""
        self.folder = folder
        self.socket = folder / "docker.sock"
        self.settings = {"GYRE_CONTAINER_PROGRAM": "docker", "DOCKER_HOST": f"unix://{self.socket}"}
        place = inside or folder
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **self.settings}
        options = ["--host", f"unix://{place / 'docker.sock'}", "--data-root", str(place / "data")]
        options += ["--exec-root", str(place / "exec"), "--pidfile", str(place / "docker.pid")]
        options += ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
        with (folder / "docker.log").open("wb") as log:
            self._daemon = subprocess.Popen(
                [*prefix, "dockerd", *options],
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(place)},
            )
        try:
            self._await_daemon()
        except BaseException:
            self._daemon.terminate()
            self._daemon.wait(timeout=60)
            raise

    def _await_daemon(self) -> None:
        deadline = time.monotonic() + LONGEST_START_SECONDS
        while subprocess.run(self.command("version"), capture_output=True, check=False).returncode != 0:
            assert self._daemon.poll() is None, (self.folder / "docker.log").read_text()
            assert time.monotonic() < deadline, (self.folder / "docker.log").read_text()
            time.sleep(0.05)

    def command(self, *words: str) -> list[str]:
        """Docker with this daemon, to be run anywhere on this machine."""
        return ["env", *(f"{name}={value}" for name, value in self.settings.items()), "docker", *words]

    def run(self, *words: str, stdin: bytes | None = None) -> str:
        return self._done(list(words), stdin, self._environment)

    def _done(self, words: list[str], stdin: bytes | None, environment: dict[str, str]) -> str:
        done = subprocess.run(
            ["docker", *words], input=stdin, capture_output=True, env=environment, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def add(self, name: str, files: bytes, changes: Iterable[str] = (), architecture: str = "") -> None:
        options = [word for change in changes for word in ("--change", change)]
        self.run("import", *options, "-", f"localhost/{name}", stdin=files)
        if architecture:
            self._relabel(f"localhost/{name}", architecture)

    def _relabel(self, name: str, architecture: str) -> None:
        """Docker cannot import for another processor than its own."""
        saved = self.folder / "saved.tar"
        self.run("save", "--output", str(saved), name)
        changed = io.BytesIO()
        with tarfile.open(saved) as old, tarfile.open(fileobj=changed, mode="w") as new:
            manifest = json.load(old.extractfile("manifest.json") or io.BytesIO())
            for entry in old.getmembers():
                content = (old.extractfile(entry) or io.BytesIO()).read() if entry.isfile() else b""
                if entry.name == manifest[0]["Config"]:
                    content = json.dumps({**json.loads(content), "architecture": architecture}).encode()
                    entry.size = len(content)
                new.addfile(entry, io.BytesIO(content))
        saved.unlink()
        self.run("load", stdin=changed.getvalue())

    def push(self, image: str, name: str, credentials: str, certificate: Path) -> bool:
        """Whether the registry, which may only just have started, has taken it. Docker trusts those of this machine."""
        del certificate
        user, password = credentials.split(":")
        keys = self.folder / "keys"
        own = {**self._environment, "DOCKER_CONFIG": str(keys)}
        try:
            words = ["login", "--username", user, "--password-stdin", name.partition("/")[0]]
            self._done(words, password.encode(), own)
        except AssertionError as error:
            if "connection refused" not in str(error):
                raise
            return False
        self.run("tag", f"localhost/{image}", name)
        self._done(["push", name], None, own)
        self.run("image", "rm", name)
        shutil.rmtree(keys)
        return True

    def containers(self) -> list[str]:
        return self.run("ps", "--all", "--format", "{{.Names}}").split()

    def kill(self, container: str) -> None:
        self.run("kill", container)

    def credentials(self) -> list[Path]:
        return list(Path("/run/gyre-containers/docker").glob("credentials-*"))

    def remove(self) -> None:
        """With the daemon, and all that it has."""
        try:
            for name in self.containers():
                self.run("rm", "--force", "--volumes", name)
        finally:
            self._daemon.terminate()
            self._daemon.wait(timeout=60)
        # The namespace of containers on the machine's own network.
        for place in reversed([line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]):
            if place.startswith(f"{self.folder}/"):
                subprocess.run(["umount", place], check=True)
        shutil.rmtree(self.folder)


class DockerHosts:
    """As DockerStorage, with a daemon on each of several hosts that are mount namespaces of this machine: none of them
    sees the folders of another host. `folder`: where each host has its own; `hosts`: where that is for everybody else,
    by a process of the host."""

    def __init__(self, folder: Path, hosts: dict[int, Path]) -> None:
        self.settings = DockerHosts.settings_at(folder)
        self._daemons: list[DockerStorage] = []
        try:
            for process, place in hosts.items():
                (place / "docker").mkdir()
                enter = ["nsenter", "--target", str(process), "--mount"]
                self._daemons.append(DockerStorage(place / "docker", folder / "docker", enter))
        except BaseException:
            self.remove()
            raise

    @staticmethod
    def settings_at(folder: Path) -> dict[str, str]:
        """Of all hosts, whose sockets have the same path there."""
        return {"GYRE_CONTAINER_PROGRAM": "docker", "DOCKER_HOST": f"unix://{folder / 'docker' / 'docker.sock'}"}

    def add(self, name: str, files: bytes) -> None:
        for daemon in self._daemons:
            daemon.add(name, files)

    def containers(self) -> list[str]:
        return [name for daemon in self._daemons for name in daemon.containers()]

    def kill(self, container: str) -> None:
        next(daemon for daemon in self._daemons if container in daemon.containers()).kill(container)

    def credentials(self) -> list[Path]:
        return self._daemons[0].credentials()

    def remove(self) -> None:
        while self._daemons:
            self._daemons.pop().remove()
