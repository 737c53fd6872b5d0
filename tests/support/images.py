"""Images of containers, made of this machine's own files, and the storage that a server's nodes keep them in."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
LONGEST_IMPORT_SECONDS = 600
APPLETS = ("sh", "cat", "chown", "df", "echo", "hostname", "id", "kill", "ls", "mkdir", "sleep", "stat", "test")


def libraries_of(*programs: Path) -> list[str]:
    listing = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=len(programs) == 1).stdout
    return sorted(set(re.findall(r"(/\S+) \(0x", listing)))


def files_of_packages(names: Iterable[str]) -> list[Path]:
    """What Debian's packages have installed on this machine."""
    listing = subprocess.run(["dpkg", "-L", *names], capture_output=True, text=True, check=True).stdout
    paths = {Path(line) for line in listing.splitlines() if line.startswith("/") and "/share/doc" not in line}
    return sorted(path for path in paths if path.is_symlink() or path.is_file())


def busybox_files(
    extra: dict[str, str | bytes] | dict[str, str] | None = None,
    programs: Sequence[Path] = (),
    packages: Sequence[str] = (),
    without: str = "",
) -> bytes:
    """A root file system, as a tar archive: busybox, but `without` one of its programs, files with these contents, and
    programs of this machine with their libraries, or whole packages, of which those of all files' libraries that lie
    elsewhere come along."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(BUSYBOX.resolve(), "bin/busybox")
        files = files_of_packages(packages) if packages else []
        loaded = [*programs, *(file for file in files if ".so" in file.name or "bin" in file.parts)]
        wanted = {str(file): file for file in files}
        wanted |= {str(file): file.resolve() for file in programs}
        for library in libraries_of(*loaded) if loaded else ():
            wanted.setdefault(library, Path(library).resolve())
        for name, file in wanted.items():
            tar.add(file, name.lstrip("/"))
        for applet in (*(f"bin/{name}" for name in APPLETS), "usr/bin/env"):
            if f"/{applet}" == without:
                continue
            link = tarfile.TarInfo(applet)
            link.type, link.linkname = tarfile.SYMTYPE, "/bin/busybox"
            tar.addfile(link)
        for folder, mode in (("tmp", 0o1777), ("root", 0o700), ("etc", 0o755)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        texts = {"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n", **(extra or {})}
        for name, text in texts.items():
            content = text.encode() if isinstance(text, str) else text
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if content.startswith(b"#!") else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


class Storage:
    """Where the nodes of a server keep images and containers: GYRE_CONTAINERS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state.mkdir(parents=True)
        # Until a node writes its own.
        (self.state / "containers.conf").write_text(
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\nlock_type = "file"\nruntime = "runc"\n'
        )

    def command(self, *words: str) -> list[str]:
        """Podman on this storage, to be run anywhere on this machine."""
        places = ["--root", str(self.folder / "root"), "--runroot", str(self.state / "run")]
        places += ["--tmpdir", str(self.state / "libpod"), "--storage-driver", "overlay"]
        return ["env", f"CONTAINERS_CONF={self.state / 'containers.conf'}", "podman", *places, *words]

    def podman(
        self, *words: str, stdin: bytes | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        command = self.command(*words)
        limit = 60 if stdin is None else LONGEST_IMPORT_SECONDS
        return subprocess.run(command, input=stdin, capture_output=True, env=environment, check=True, timeout=limit)

    @property
    def state(self) -> Path:
        return Path("/run/gyre-containers") / hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]

    @property
    def settings(self) -> dict[str, str]:
        """Of a server whose nodes use it."""
        return {"GYRE_CONTAINERS": str(self.folder)}

    def add(self, name: str, files: bytes, changes: Iterable[str] = (), architecture: str = "") -> None:
        options = [word for change in changes for word in ("--change", change)]
        options += ["--arch", architecture] if architecture else []
        self.podman("import", *options, "-", name, stdin=files)

    def push(self, image: str, name: str, credentials: str, certificate: Path) -> bool:
        """Whether the registry, which may only just have started, has taken it."""
        trust = {**os.environ, "SSL_CERT_FILE": str(certificate)}
        words = ("--quiet", "--creds", credentials, image, f"docker://{name}")
        try:
            self.podman("push", *words, environment=trust)
        except subprocess.CalledProcessError as error:
            if b"connection refused" not in error.stderr:
                raise
            return False
        return True

    def containers(self) -> list[str]:
        return self.podman("ps", "--all", "--format", "{{.Names}}").stdout.decode().split()

    def kill(self, container: str) -> None:
        self.podman("kill", container)

    def credentials(self) -> list[Path]:
        """Passwords that lie there."""
        return list(self.state.glob("credentials-*"))

    def remove(self) -> None:
        for name in self.containers():
            self.podman("rm", "--force", "--time", "0", name)
        shutil.rmtree(self.folder)
        shutil.rmtree(self.state)


def why_no_podman() -> str:
    """Why this machine cannot run containers; empty: it can."""
    if os.geteuid() != 0:
        return "containers of jobs need root"
    if shutil.which("podman") is None:
        return "there is no podman"
    return ""
