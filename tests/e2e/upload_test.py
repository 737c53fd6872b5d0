"""`gyre stage DIR --to URL`: a folder becomes objects of Azure Blob Storage and S3, each whole and once, whatever
happens on the way; what comes back is what went."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from azurite import ACCOUNT, KEY, PROGRAM, Azurite, azurite
from fault_server import fault_server
from moto_s3 import FOLDER as MOTO
from moto_s3 import moto_s3
from staging import MIB, contents, run_stage, some_files, write_files

needs_azurite = pytest.mark.skipif(
    not PROGRAM.exists(), reason="Azurite is not installed: `./dev setup test` does so where there is npm"
)
needs_moto = pytest.mark.skipif(not MOTO.exists(), reason="moto is not installed: `./dev setup test` does so")

STORES = [pytest.param("azure", marks=needs_azurite), pytest.param("s3", marks=needs_moto)]
S3_KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "a secret of somebody"}


class Place:
    """A place in a store, and `gyre stage` with what lets it in."""

    def __init__(self, gyre: Path, url: str, environment: dict[str, str]) -> None:
        self.gyre = gyre
        self.url = url
        self.environment = environment

    def stage(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return run_stage(self.gyre, *words, environment=self.environment)

    def upload(self, folder: Path, *words: str) -> dict[str, Any]:
        """The receipt."""
        done = self.stage(folder, "--to", self.url, "--json", *words)
        assert done.returncode == 0, done.stderr
        receipt = json.loads(done.stdout)
        assert isinstance(receipt, dict)
        assert receipt["complete"]
        assert receipt["files_sent"] + receipt["files_present"] + receipt["files_kept"] == receipt["files"]
        return receipt


@pytest.fixture
def place(request: pytest.FixtureRequest, gyre: Path, tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "server").mkdir()
    if request.param == "azure":
        with azurite(tmp_path / "server") as server:
            server.container("data", {})
            yield Place(gyre, "az://data/some/set", {"AZURE_STORAGE_CONNECTION_STRING": server.connection_string})
    else:
        with moto_s3(tmp_path / "server", {"data": {}}) as endpoint:
            yield Place(gyre, "s3://data/some/set", {"AWS_ENDPOINT_URL": endpoint, **S3_KEYS})


def a_set(folder: Path, seed: int) -> dict[str, bytes]:
    """Small files, one of three blocks, one that compresses well."""
    generator = random.Random(seed)
    files = some_files(seed) | {
        "below/large.bin": generator.randbytes(40 * MIB + 5),
        "below/even.bin": bytes(200_000),
        "sixteen.bin": generator.randbytes(16 * MIB),
    }
    write_files(folder, files)
    return files


@pytest.mark.parametrize("place", STORES, indirect=True)
@pytest.mark.parametrize("way", ["plain", "compressed"])
def test_what_goes_up_comes_back_and_goes_up_once(place: Place, tmp_path: Path, way: str) -> None:
    files = a_set(tmp_path / "set", 1)
    total = sum(map(len, files.values()))
    words = ["--compress", "gzip"] if way == "compressed" else []
    receipt = place.upload(tmp_path / "set", *words)
    assert receipt["files_sent"] == len(files)
    assert receipt["read_bytes"] == total
    assert receipt["sent_bytes"] == receipt["stored_bytes"]
    assert (receipt["stored_bytes"] == total) == (way == "plain")
    again = place.upload(tmp_path / "set", *words)
    assert (again["files_present"], again["sent_bytes"]) == (len(files), 0)
    assert again["stored_bytes"] == receipt["stored_bytes"]
    done = place.stage(place.url, "--to", tmp_path / "back", *(["--decompress"] if way == "compressed" else []))
    assert done.returncode == 0, done.stderr
    back = contents(tmp_path / "back")
    if way == "compressed" and place.url.startswith("s3:"):
        # S3's listings do not say how objects are encoded.
        back = {name: gzip.decompress(body) for name, body in back.items()}
    assert back == files
    # Of what has changed, only that is sent, also where its size is the same.
    (tmp_path / "set/part_000.bin").write_bytes(bytes(byte ^ 1 for byte in files["part_000.bin"]))
    changed = place.upload(tmp_path / "set", *words)
    assert (changed["files_sent"], changed["files_present"]) == (1, len(files) - 1)
    (tmp_path / "set/part_001.bin").write_bytes(b"other, too")
    kept = place.upload(tmp_path / "set", *words, "--overwrite", "false")
    assert (kept["files_sent"], kept["files_kept"]) == (0, 1)


@pytest.mark.parametrize("place", STORES, indirect=True)
def test_the_same_bytes_in_another_encoding_are_another_object(place: Place, tmp_path: Path) -> None:
    """A corrected --content-encoding is not taken for what is there already."""
    write_files(tmp_path / "set", {"a.gz": gzip.compress(b"a" * 1000), "b.gz": gzip.compress(b"b")})
    encoded = ["--content-encoding", "gzip"]
    for words, sent in (([], 2), ([], 0), (encoded, 2), (encoded, 0), ([], 2)):
        receipt = place.upload(tmp_path / "set", *words)
        assert (receipt["files_sent"], receipt["files_present"]) == (sent, 2 - sent), words


@pytest.mark.parametrize("place", STORES[:1], indirect=True)
def test_files_that_are_compressed_already_come_back_as_they_were(place: Place, tmp_path: Path) -> None:
    files = {"x.txt": b"x" * 1000, "x.txt.gz": gzip.compress(b"x"), "p.tfrecord.gz": gzip.compress(b"record")}
    write_files(tmp_path / "set", files)
    place.upload(tmp_path / "set", "--compress", "gzip")
    done = place.stage(place.url, "--to", tmp_path / "back", "--decompress")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "back") == files


class Proxy:
    """Hands on connections to a port. With a seed it resets every other one somewhere in its middle."""

    def __init__(self, port: int, seed: int | None = None) -> None:
        self.target = port
        self.generator = None if seed is None else random.Random(seed)
        self.passed_bytes = 0  # To the server.
        self.resets = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self) -> Proxy:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    def serve(self) -> None:
        number = 0
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            number += 1
            most = self.generator.randrange(1000, 6 * MIB) if self.generator and number % 2 else 1 << 60
            for one in ((client, server, most), (server, client, 0)):
                threading.Thread(target=self.move, args=one, daemon=True).start()

    def move(self, source: socket.socket, target: socket.socket, most: int) -> None:
        """`most`: bytes to the server; 0 for what comes from there."""
        moved = 0
        with suppress(OSError):
            while (piece := source.recv(65536)) and (most == 0 or moved < most):
                target.sendall(piece)
                moved += len(piece)
                with self.lock:
                    self.passed_bytes += len(piece) if most else 0
        with self.lock:
            self.resets += 0 < most <= moved
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("place", STORES, indirect=True)
def test_a_killed_upload_goes_on_where_it_was(place: Place, tmp_path: Path) -> None:
    """Nothing of a large object that had arrived is sent again, and nothing is seen of it before it is complete."""
    body = random.Random(2).randbytes(80 * MIB)
    write_files(tmp_path / "set", {"large.bin": body})
    port = next(int(found) for value in place.environment.values() for found in re.findall(r"127.0.0.1:(\d+)", value))
    command = [place.gyre, "stage", tmp_path / "set", "--to", place.url, "--cap-mbps", "320", "--connections", "2"]
    with Proxy(port) as proxy:
        through = {name: value.replace(f":{port}", f":{proxy.port}") for name, value in place.environment.items()}
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **through}
        with subprocess.Popen([*map(str, command), "--quiet"], env=environment) as upload:
            # Two blocks of 16 MiB are under way at most: one is there.
            while proxy.passed_bytes < 40 * MIB:
                assert upload.poll() is None
                time.sleep(0.01)
            upload.send_signal(signal.SIGKILL)
    listed = place.stage(place.url, "--list")
    assert (listed.returncode, "holds no objects" in listed.stderr) == (1, True), listed.stdout
    receipt = place.upload(tmp_path / "set")
    assert receipt["reused_bytes"] > 0
    assert receipt["sent_bytes"] + receipt["reused_bytes"] == len(body)
    done = place.stage(place.url, "--to", tmp_path / "back")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "back") == {"large.bin": body}


@needs_azurite
def test_connections_that_break_cost_no_byte(gyre: Path, tmp_path: Path) -> None:
    files = some_files(3, 20, MIB) | {"large.bin": random.Random(3).randbytes(40 * MIB)}
    write_files(tmp_path / "set", files)
    (tmp_path / "server").mkdir()
    with azurite(tmp_path / "server") as server:
        server.container("data", {})
        with Proxy(server.port, 3) as proxy:
            through = server.connection_string.replace(f":{server.port}/", f":{proxy.port}/")
            Place(gyre, "az://data", {"AZURE_STORAGE_CONNECTION_STRING": through}).upload(tmp_path / "set")
        assert proxy.resets > 0, "some connections were to break"
        place = Place(gyre, "az://data", {"AZURE_STORAGE_CONNECTION_STRING": server.connection_string})
        done = place.stage("az://data", "--to", tmp_path / "back")
        assert done.returncode == 0, done.stderr
        assert contents(tmp_path / "back") == files


@needs_azurite
def test_azcopys_words_and_encodings_go_up(gyre: Path, tmp_path: Path) -> None:
    """A folder goes below its own name, files that are compressed already with the encoding that they are given."""
    text = b"some text " * 1000
    write_files(tmp_path / "set", {"a.txt": gzip.compress(text)})
    (tmp_path / "server").mkdir()
    with azurite(tmp_path / "server") as server:
        server.container("data", {})
        sas = server.sas(permissions="rlwc")
        url = f"{server.endpoint}/data"
        words = ["copy", tmp_path / "set", f"{url}?{sas}", "--recursive", "--content-encoding", "gzip"]
        done = run_stage(gyre, *words)
        assert done.returncode == 0, done.stderr
        back = run_stage(gyre, f"{url}?{sas}", "--to", tmp_path / "back", "--decompress")
        assert back.returncode == 0, back.stderr
        assert contents(tmp_path / "back") == {"set/a.txt": text}
        assert sas[-20:] not in done.stdout + done.stderr
        assert not re.search("sig=[^x]", done.stdout + done.stderr)


@needs_azurite
def test_what_keeps_us_out_is_one_sentence(gyre: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "set", {"a": b"a", "b": b"b"})
    (tmp_path / "server").mkdir()
    with azurite(tmp_path / "server") as server, fault_server({"a": b"a"}) as web:
        server.container("data", {})
        key = {"AZURE_STORAGE_CONNECTION_STRING": server.connection_string}
        wrong = {"AZURE_STORAGE_CONNECTION_STRING": server.connection_string.replace(KEY, "c29tZXRoaW5n")}
        reading = f"{server.endpoint}/data?{server.sas()}"
        for url, environment, words, said in [
            (reading, {}, [], "does not allow writing (sp=rl lacks w)"),
            ("az://none", key, [], "does not have it"),
            ("az://data", wrong, [], "refuses it"),
            (web.url, {}, [], "cannot be written to"),
            ("az://data", key, ["--decompress"], "--decompress is for files that come"),
            ("az://data", key, ["--compress", "gzip", "--content-encoding", "gzip"], "--compress sets"),
            ("az://data", key, ["--compress", "zstd"], "--compress"),
            (str(tmp_path / "there"), {}, ["--compress", "gzip"], "are for files that go to a URL"),
        ]:
            done = run_stage(gyre, tmp_path / "set", "--to", url, *words, environment=environment)
            assert done.returncode in (1, 2), (url, done.stdout)
            assert said in done.stderr, done.stderr
            assert len(done.stderr.strip().splitlines()) <= 3, done.stderr
            assert ACCOUNT not in said
        missing = run_stage(gyre, tmp_path / "none", "--to", "az://data", environment=key)
        assert (missing.returncode, "none" in missing.stderr) == (1, True), missing.stderr
        assert isinstance(server, Azurite)
