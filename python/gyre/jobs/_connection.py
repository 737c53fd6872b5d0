"""The address of a job server and the token for it, by the same rules as in the commands of `gyre`."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from gyre.errors import InvalidArgumentError, NotFoundError

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Connection:
    """`server`: "unix:/PATH" or "https://HOST:PORT#FINGERPRINT". `token`: empty if the kernel tells a server on this
    machine who asks. `server_account`: whose server at a Unix socket may get the token, in addition to root's and our
    own."""

    server: str
    token: str = field(repr=False)
    server_account: str = ""

    def __post_init__(self) -> None:
        if self.server.startswith("unix:"):
            return
        parts = urlsplit(self.server)
        if parts.scheme != "https" or parts.port is None or not _FINGERPRINT.fullmatch(parts.fragment):
            raise InvalidArgumentError(
                f"{self.server!r} names no job server; unix:/PATH and https://HOST:PORT#FINGERPRINT do, as "
                "`gyre server --listen HOST:PORT` shows it: by its fingerprint a server proves that it may have a token"
            )


def _configuration() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME")
    return Path(folder) if folder else Path.home() / ".config"


def _read(path: Path) -> Connection | None:
    """The connection that `gyre server` wrote; None if there is no such file."""
    if not path.exists():
        return None
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidArgumentError(f"others than its user can read {path}, which holds a token; chmod 600 it")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Connection(content["server"], content.get("token", ""), content.get("serverAccount", ""))
    except (ValueError, KeyError, TypeError) as failure:
        raise InvalidArgumentError(f"{path} does not say where a job server listens") from failure


def _found_door() -> Connection | None:
    """A server that nobody has named: the user's own, or root's."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folders = [Path(runtime)] if runtime.startswith("/") else []
    for folder in (*folders, Path("/run")):
        door = folder / "gyre" / "gyre.sock"
        if door.is_socket():
            return Connection(f"unix:{door}", "")
    return None


def find_connection(server: str | None = None, token: str | None = None) -> Connection:
    """`server`: its address, or the file that it wrote. Arguments take precedence over GYRE_SERVER and GYRE_TOKEN,
    these over the file that `gyre server` writes for its user, and this over the sockets of the user's own server and
    of root's. A file's token is sent only to the server that the file names."""
    server = server or os.environ.get("GYRE_SERVER")
    token = token or os.environ.get("GYRE_TOKEN")
    is_file = server is not None and not server.startswith("unix:") and "://" not in server
    path = Path(server) if server is not None and is_file else _configuration() / "gyre" / "server.json"
    file = _read(path) if is_file or server is None or token is None else None
    if file is None and is_file:
        raise NotFoundError(
            f"there is no file {server}; a server is named by unix:/PATH, https://HOST:PORT#FINGERPRINT, "
            "or a file with one of them"
        )
    if file is None and server is None:
        file = _found_door()
    if file is None and server is None:
        raise NotFoundError("no job server is known here: start one with `gyre server`, or set GYRE_SERVER")
    place = file.server if file is not None and (is_file or server is None) else server
    assert place is not None
    if not token and file is not None and file.server == place:
        token = file.token
    if not token and not place.startswith("unix:"):
        raise NotFoundError(f"there is no token for {place}: set GYRE_TOKEN")
    return Connection(place, token or "", file.server_account if file is not None else "")
