"""Requests to one job server, over TCP or a Unix socket."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import pwd
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from gyre.errors import Error, InvalidArgumentError
from gyre.jobs._connection import Connection

# Without a byte of an answer.
_SILENCE_SECONDS = 60.0
_SHORTEST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0
_PASSING_STATUSES = (429, 503)


class ServerError(Error):
    """The server's error response. `code` is a word for programs ("JobNotFound"), `status` the HTTP status."""

    def __init__(self, message: str, code: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class NoServerError(Error):
    """No server answers."""

    code = "PEER_LOST"


class UnixConnection(http.client.HTTPConnection):
    """`place`: a Unix socket; its server gets the token only if it is root's, our own, or that of its account."""

    def __init__(self, place: Connection, timeout: float = _SILENCE_SECONDS) -> None:
        super().__init__("localhost", timeout=timeout)
        self._place = place

    def connect(self) -> None:
        path = self._place.server.removeprefix("unix:")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect("\0" + path[1:] if path.startswith("@") else path)
        if not self._place.token:
            return
        credentials = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, owner, _ = struct.unpack("3i", credentials)
        if owner not in (0, os.geteuid(), _number_of(self._place.server_account)):
            raise InvalidArgumentError(
                f"the server at {self._place.server} belongs to account number {owner}, and the token is for another "
                "one's; it was not sent"
            )


class _TlsConnection(http.client.HTTPSConnection):
    """To a server that nobody vouches for: by its fingerprint it proves, before anything is sent, that it is meant."""

    def __init__(self, host: str, port: int, fingerprint: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        super().__init__(host, port, timeout=_SILENCE_SECONDS, context=context)
        self._fingerprint = fingerprint

    def connect(self) -> None:
        super().connect()
        certificate = self.sock.getpeercert(binary_form=True) or b""
        found = hashlib.sha256(certificate).hexdigest()
        if found != self._fingerprint:
            self.close()
            raise InvalidArgumentError(
                f"the server at {self.host}:{self.port} is not the one that is meant: its fingerprint is {found}, not "
                f"{self._fingerprint}; nothing was sent to it"
            )


def _number_of(account: str) -> int | None:
    try:
        return pwd.getpwnam(account).pw_uid
    except KeyError:
        return None


def path_of(*segments: str) -> str:
    """ "/workspaces/w/jobs"; each segment encoded."""
    return "".join("/" + quote(segment, safe="") for segment in segments)


class Session:
    """Not thread-safe. `patience`: for how many seconds requests to an unreachable server are retried, if that is
    safe."""

    def __init__(self, connection: Connection, patience: float) -> None:
        self._place = connection
        self._patience = patience
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """The response, with its body still to be read. `body`: bytes are sent as they are, anything else as JSON.
        ServerError, NoServerError."""
        target = path + ("?" + urlencode(query) if query else "")
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        may_repeat = method not in ("POST", "PATCH")
        deadline = time.monotonic() + self._patience
        pause = _SHORTEST_PAUSE_SECONDS
        while True:
            fresh = self._connection is None
            failure: Exception
            try:
                return self._send_once(method, target, data, dict(headers or {}))
            except ServerError as refused:
                if refused.status not in _PASSING_STATUSES or not may_repeat or time.monotonic() >= deadline:
                    raise
                failure = refused
            except (OSError, http.client.HTTPException) as lost:
                self.close()
                failure = lost
                if not fresh and may_repeat:
                    continue  # A kept connection was stale.
            if not may_repeat or time.monotonic() >= deadline:
                raise NoServerError(
                    f"no job server answers at {self._place.server} ({failure}); start it again with `gyre server`"
                ) from failure
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def json(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None) -> Any:
        """The parsed body of the response; None if it is empty."""
        with contextlib.closing(self.send(method, path, query, body)) as response:
            text = response.read()
        return json.loads(text) if text else None

    def list(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """All items; pages are requested as needed."""
        page = self.json("GET", path, query)
        while True:
            yield from page["value"]
            if not page.get("nextLink"):
                return
            page = self.json("GET", page["nextLink"])

    def _send_once(
        self, method: str, target: str, data: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._connect()
        if self._place.token:
            headers["Authorization"] = f"Bearer {self._place.token}"
        self._connection.request(method, target, data, headers)
        response = self._connection.getresponse()
        if response.status < 400:
            return response
        raise _error_of(response.status, response.read())

    def _connect(self) -> http.client.HTTPConnection:
        if self._place.server.startswith("unix:"):
            return UnixConnection(self._place)
        parts = urlsplit(self._place.server)
        assert parts.port is not None
        return _TlsConnection(parts.hostname or "", parts.port, parts.fragment)


def _error_of(status: int, body: bytes) -> ServerError:
    try:
        error = json.loads(body)["error"]
        return ServerError(error["message"], error["code"], status)
    except (ValueError, KeyError, TypeError):
        return ServerError(f"the server answered {status}: {body[:200]!r}", status=status)
