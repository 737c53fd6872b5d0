"""Azure Blob Storage on this machine: Azurite, filled by a small client that signs as documented."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote, urlencode

PROGRAM = Path(sys.prefix) / "azurite/node_modules/.bin/azurite-blob"
ACCOUNT = "gyretest"
KEY = base64.b64encode(b"a key that nobody has to keep secret").decode()
VERSION = "2021-12-02"
START_SECONDS = 60
NOTHING: Mapping[str, str] = {}


@dataclass
class Azurite:
    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    @property
    def connection_string(self) -> str:
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={self.endpoint};"

    def put(
        self, path: str, body: bytes = b"", query: Mapping[str, str] = NOTHING, headers: Mapping[str, str] = NOTHING
    ) -> None:
        """PUT, signed with the account's key ("Authorize with Shared Key"); `headers` begin with x-ms-."""
        own = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION, **headers}
        length = str(len(body)) if body else ""
        named = "".join(f"{name}:{own[name]}\n" for name in sorted(own))
        resource = f"/{ACCOUNT}/{ACCOUNT}{quote(path)}" + "".join(f"\n{name}:{query[name]}" for name in sorted(query))
        text = f"PUT\n\n\n{length}\n\n\n\n\n\n\n\n\n{named}{resource}"
        own["Authorization"] = f"SharedKey {ACCOUNT}:{_sign(text)}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("PUT", f"/{ACCOUNT}{quote(path)}?{urlencode(query)}", body, own)
        reply = connection.getresponse()
        assert reply.status in (201, 202), (reply.status, reply.read())

    def container(self, name: str, blobs: Mapping[str, bytes], encodings: Mapping[str, str] = NOTHING) -> None:
        self.put(f"/{name}", query={"restype": "container"})
        for blob, body in blobs.items():
            headers = {"x-ms-blob-type": "BlockBlob"}
            if blob in encodings:
                headers["x-ms-blob-content-encoding"] = encodings[blob]
            self.put(f"/{name}/{blob}", body, headers=headers)

    def sas(self, *, permissions: str = "rl", types: str = "co", seconds: float = 3600) -> str:
        """An account SAS, as article 004's script makes it ("Create an account SAS")."""
        expiry = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        fields = [ACCOUNT, permissions, "b", types, "", expiry, "", "", VERSION, ""]
        signature = _sign("\n".join(fields) + "\n")
        return urlencode({"sv": VERSION, "ss": "b", "srt": types, "sp": permissions, "se": expiry, "sig": signature})


def _sign(text: str) -> str:
    return base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()


@contextmanager
def azurite(folder: Path) -> Iterator[Azurite]:
    """Runs until the end of the block, on a free port."""
    log = folder / "azurite.log"
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    command = [str(PROGRAM), "--blobPort", "0", "--location", str(folder / "blobs"), "--skipApiVersionCheck"]
    with (
        log.open("w") as output,
        subprocess.Popen(
            [*command, "--disableTelemetry"], stdout=output, stderr=output, env=environment, cwd=folder
        ) as server,
    ):
        try:
            yield Azurite(_port(server, log))
        finally:
            server.terminate()


def _port(server: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        for line in log.read_text().splitlines():
            if "successfully listens on" in line:
                return int(line.rstrip().rsplit(":", 1)[-1])
        time.sleep(0.05)
    raise AssertionError(f"Azurite does not start: {log.read_text()}")
