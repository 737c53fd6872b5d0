"""nginx, with index pages, on a free port."""

from __future__ import annotations

import getpass
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 30


@contextmanager
def nginx(
    root: Path, folder: Path, location: str = "", *, address: str = "127.0.0.1", prefix: Sequence[str] = ()
) -> Iterator[str]:
    """Serves `root`; `location` are further lines of the configuration. Gives the URL of its index page.

    `prefix` are the first words of its command line, to start it on a simulated host, whose `address` this is.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    temporary = "\n".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"user {getpass.getuser()}; daemon off; worker_processes 1;\n"
        f"pid {folder}/nginx.pid; error_log {folder}/nginx.log;\n"
        f"events {{ worker_connections 256; }}\n"
        f"http {{ access_log off; {temporary}\n"
        f"server {{ listen {address}:{port}; root {root}; autoindex on; {location} }} }}\n"
    )
    command = [*prefix, "nginx", "-e", str(folder / "nginx.log"), "-c", str(configuration)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + START_SECONDS
            # Written when it listens.
            while not (folder / "nginx.pid").exists():
                assert time.monotonic() < deadline, (folder / "nginx.log").read_text()
                assert server.poll() is None, (folder / "nginx.log").read_text()
                time.sleep(0.02)
            yield f"http://{address}:{port}/"
        finally:
            server.terminate()
