"""A private registry of images: Debian's docker-registry, behind TLS, with one user."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from machine import free_port

USER, PASSWORD = "ada", "lovelace"


@contextmanager
def registry(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields its name, 127.0.0.1:PORT, and the certificate that its clients must trust."""
    certificate, key, users = folder / "registry.crt", folder / "registry.key", folder / "users"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=registry",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-out",
            certificate,
            "-keyout",
            key,
        ],
        check=True,
        capture_output=True,
    )
    users.write_bytes(subprocess.run(["htpasswd", "-Bbn", USER, PASSWORD], check=True, capture_output=True).stdout)
    name = f"127.0.0.1:{free_port()}"
    configuration = folder / "registry.yml"
    configuration.write_text(
        f"""version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/data}}}}
http: {{addr: "{name}", secret: s, tls: {{certificate: {certificate}, key: {key}}}}}
auth: {{htpasswd: {{realm: test, path: {users}}}}}
"""
    )
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(
            ["docker-registry", "serve", configuration], stdout=log, stderr=log, env={"PATH": os.environ["PATH"]}
        )
    try:
        yield name, certificate
    finally:
        process.kill()
        process.wait()
