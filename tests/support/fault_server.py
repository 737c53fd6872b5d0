"""A web server that fails as others do: overloaded, cut off in the middle, blind to ranges, changed meanwhile."""

from __future__ import annotations

import hashlib
import random
import socket
import struct
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote

# What may become of one request for a file's bytes.
FAULTS = ("overloaded", "failing", "reset", "short", "blind")


class FaultServer:
    """Serves `files` at /NAME, and an index page at /. `choose` names the fault of a file's N-th request."""

    def __init__(self, files: Mapping[str, bytes], choose: Callable[[str, int], str | None]) -> None:
        self.files = dict(files)
        self.choose = choose
        self.etags: dict[str, str] = {}
        self.dates: dict[str, str] = {}  # Of files that have no ETags, only these.
        self.heeds_dates = True
        self.md5: dict[str, bytes] = {}  # Instead of the right one.
        self.sent_bytes = 0
        self.requests: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.lock = threading.Lock()
        server = self

        class Handler(_Handler):
            fault_server = server

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/"

    def etag(self, name: str) -> str:
        return self.etags.get(name, f'"{hashlib.sha1(self.files[name]).hexdigest()[:16]}"')

    def count(self, name: str) -> int:
        with self.lock:
            self.requests[name] += 1
            return self.requests[name]


class _Handler(BaseHTTPRequestHandler):
    fault_server: FaultServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        server = self.fault_server
        name = unquote(self.path.split("?")[0].lstrip("/"))
        if not name:
            page = "".join(f'<a href="{quote(file)}">{file}</a>\n' for file in sorted(server.files))
            self.reply(200, page.encode(), body=body, kind="text/html")
        elif name not in server.files:
            self.reply(404, b"no such file", body=body)
        elif not body:
            self.head(200, len(server.files[name]), name)
        else:
            self.give(name)

    def give(self, name: str) -> None:
        server = self.fault_server
        contents = server.files[name]
        asked_for, date = self.headers.get("If-Unmodified-Since"), server.dates.get(name)
        changed = self.headers.get("If-Match", server.etag(name)) != server.etag(name)
        if changed or (server.heeds_dates and date is not None and asked_for not in (None, date)):
            self.reply(412, b"changed")
            return
        fault = server.choose(name, server.count(name))
        if fault is not None:
            with server.lock:
                server.faults[fault] += 1
        if fault == "overloaded":
            self.reply(503, b"busy", retry_after="0")
            return
        if fault == "failing":
            self.reply(500, b"oops")
            return
        first, last = self.range(len(contents))
        partial = (first, last) != (0, len(contents) - 1) and fault != "blind"
        body = contents[first : last + 1] if partial else contents
        self.head(206 if partial else 200, len(body), name, (first, last, len(contents)) if partial else None)
        if fault in ("reset", "short"):
            body = body[: len(body) // 2]
        with server.lock:
            server.sent_bytes += len(body)  # Before a reader that has it all can look.
        try:
            self.wfile.write(body)
        except OSError:  # The reader had enough.
            with server.lock:
                server.sent_bytes -= len(body)
            return
        if fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if fault in ("reset", "short"):
            self.close_connection = True

    def range(self, size: int) -> tuple[int, int]:
        asked = self.headers.get("Range")
        if asked is None:
            return 0, size - 1
        first, last = asked.removeprefix("bytes=").split("-")
        return int(first), min(int(last), size - 1)

    def head(self, status: int, length: int, name: str, part: tuple[int, int, int] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        date = self.fault_server.dates.get(name)
        if date is None:
            self.send_header("ETag", self.fault_server.etag(name))
        elif part is None or not self.fault_server.heeds_dates:  # Else a part is refused, or sent as if it were sound.
            self.send_header("Last-Modified", date)
        self.send_header("Accept-Ranges", "bytes")
        if name in self.fault_server.md5:
            self.send_header("Content-MD5", b64encode(self.fault_server.md5[name]).decode())
        if part is not None:
            self.send_header("Content-Range", f"bytes {part[0]}-{part[1]}/{part[2]}")
        self.end_headers()

    def reply(
        self, status: int, text: bytes, *, body: bool = True, kind: str = "text/plain", retry_after: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        if body:
            self.wfile.write(text)

    def log_message(self, *arguments: object) -> None:
        pass


def seldom(seed: int, share: float) -> Callable[[str, int], str | None]:
    """A fault for this share of the requests, and never four in a row for one file; the same for the same seed."""

    def choose(name: str, number: int) -> str | None:
        generator = random.Random(f"{seed} {name} {number}")
        return generator.choice(FAULTS) if number % 4 != 0 and generator.random() < share else None

    return choose


@contextmanager
def fault_server(
    files: Mapping[str, bytes], choose: Callable[[str, int], str | None] = lambda _name, _number: None
) -> Iterator[FaultServer]:
    server = FaultServer(files, choose)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        thread.join()
        server.http.server_close()
