"""S3 on this machine: moto's server, in a process of its own, filled by unsigned requests, which it accepts."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

FOLDER = Path(sys.prefix) / "moto"
START_SECONDS = 60


@contextmanager
def moto_s3(folder: Path, buckets: Mapping[str, Mapping[str, bytes]]) -> Iterator[str]:
    """Runs until the end of the block. Gives the URL of its endpoint."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(FOLDER)}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = folder / "moto.log"
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=folder) as server,
    ):
        try:
            _wait_for(port, server, log)
            for bucket, objects in buckets.items():
                put(port, f"/{bucket}", b"")
                for name, body in objects.items():
                    put(port, f"/{bucket}/{quote(name)}", body)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def put(port: int, path: str, body: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("PUT", path, body, {"x-amz-acl": "public-read"})
    reply = connection.getresponse()
    assert reply.status == 200, (reply.status, reply.read())
    connection.close()


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return
