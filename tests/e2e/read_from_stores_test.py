"""`gyre.data.Loader`, `open_file` and the training programs over store://: the batches of a folder, bit for bit,
whichever daemons are killed, started anew or serve something else meanwhile; or one error."""

from __future__ import annotations

import hashlib
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fault_server import fault_server
from gyre.errors import CorruptDataError, Error, NotFoundError
from hosts import Hosts, run_ranks
from nginx import nginx
from staging import MIB, contents, run_stage, write_files
from store_nodes import StoreNodes

from gyre.data import Loader, ints, open_file, raw, write_tfrecords

ON_DEMAND = "--on-demand"
FIELDS = {"x": raw("uint8", 20_000), "label": ints()}

# Prints a line for each batch; between two of them it waits for a line.
READER = """
import hashlib, sys
from gyre.data import Loader, ints, raw
loader = Loader(sys.argv[1], {"x": raw("uint8", 20_000), "label": ints()}, batch_size=8, shuffle=True, output="numpy",
                threads=2, memory_budget=4_000_000)
print("made", flush=True)
for _ in range(2):
    for batch in loader:
        sys.stdin.readline()
        print(hashlib.sha256(batch["x"].tobytes() + batch["label"].tobytes()).hexdigest(), flush=True)
"""


def write_records(folder: Path, files: int = 12, records: int = 20) -> None:
    generator = np.random.default_rng(4)
    folder.mkdir()
    for file in range(files):
        examples = [
            {"x": generator.integers(0, 256, 20_000, dtype=np.uint8).tobytes(), "label": file * records + i}
            for i in range(records)
        ]
        write_tfrecords(folder / f"part-{file:02}.tfrecord", examples)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def batches(files: str | Path, *, epochs: int = 1) -> list[str]:
    loader = Loader(files, FIELDS, batch_size=8, shuffle=True, output="numpy", threads=2)
    return [
        hashlib.sha256(batch["x"].tobytes() + batch["label"].tobytes()).hexdigest()
        for _ in range(epochs)
        for batch in loader
    ]


def url_of(nodes: StoreNodes, node: int = 0) -> str:
    return f"store://{nodes.store_dir(node)}/store"


@pytest.mark.needs_root
@pytest.mark.needs_programs("nginx")
def test_daemons_are_killed_under_a_loader_and_no_byte_is_wrong(gyre: Path, tmp_path: Path) -> None:
    """Three hosts and a web server. An owner dies, then all others, then the reader's own daemon; they come back."""
    write_records(tmp_path / "web")
    expected = batches(tmp_path / "web", epochs=2)
    with Hosts.create(4, "1gbit") as hosts:
        prefixes = [hosts.command_on(host, []) for host in range(4)]
        addresses = [hosts.address(host) for host in range(4)]
        with (
            nginx(tmp_path / "web", tmp_path, address=addresses[3], prefix=prefixes[3]) as source,
            StoreNodes(gyre, tmp_path, 3, source, ON_DEMAND, addresses=addresses[:3], prefixes=prefixes[:3]) as nodes,
        ):
            nodes.start()
            reader = subprocess.Popen(
                [*prefixes[0], sys.executable, "-c", READER, url_of(nodes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert reader.stdin is not None
            assert reader.stdout is not None
            with reader:
                assert reader.stdout.readline() == "made\n", "the loader reports why"
                acts = {
                    4: lambda: nodes.end(1, signal.SIGKILL),
                    9: lambda: nodes.end(2, signal.SIGKILL),
                    14: lambda: nodes.start(1),
                    18: lambda: nodes.end(0, signal.SIGKILL),
                    28: lambda: nodes.start(0),
                    36: lambda: nodes.end(0, signal.SIGKILL),
                    40: lambda: (nodes.start(0), nodes.start(2)),
                    46: lambda: nodes.end(1, signal.SIGKILL),
                }
                assert max(acts) < len(expected)
                for number, batch in enumerate(expected):
                    if number in acts:
                        acts[number]()
                    reader.stdin.write("\n")
                    reader.stdin.flush()
                    assert reader.stdout.readline() == batch + "\n", f"batch {number}"
            assert reader.returncode == 0


def some_set(seed: int, count: int = 3) -> dict[str, bytes]:
    """Files that are larger than what their readers hold."""
    generator = random.Random(seed)
    return {f"f{i}.bin": generator.randbytes(4 * MIB + i) for i in range(count)}


def forget_chunks(nodes: StoreNodes, node: int = 0) -> None:
    for chunk in nodes.chunk_files(node):
        chunk.unlink()


def test_a_daemon_that_serves_something_else_meanwhile_gives_none_of_it(gyre: Path, tmp_path: Path) -> None:
    """Entries of a catalog have numbers: with a file more, they mean other files."""
    files = some_set(1)
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 1, server.url, ON_DEMAND) as nodes:
        nodes.start()
        with open_file(f"{url_of(nodes)}/f1.bin") as file:
            assert file.read(100) == files["f1.bin"][:100]
            nodes.end(0)
            forget_chunks(nodes)
            server.files["f.bin"] = files["f2.bin"]
            nodes.start()
            assert file.read() == files["f1.bin"][100:]
            with open_file(f"{url_of(nodes)}/f.bin") as other:
                assert other.read() == files["f2.bin"]
            server.etags["f1.bin"] = '"another"'
            nodes.end(0)
            forget_chunks(nodes)
            file.seek(0)
            with pytest.raises(CorruptDataError, match=r"f1\.bin.*has changed since it was listed"):
                file.read()


def test_without_its_daemon_a_program_reads_what_lies_here_and_the_rest_from_the_source(
    gyre: Path, tmp_path: Path
) -> None:
    files = some_set(2)
    total = sum(map(len, files.values()))
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 1, server.url) as nodes:
        nodes.start()
        nodes.wait_until_fetched()
        opened = {name: open_file(f"{url_of(nodes)}/{name}") for name in files}
        nodes.end(0, signal.SIGKILL)
        assert opened["f0.bin"].read() == files["f0.bin"]
        assert server.sent_bytes == total, "it lies here"
        for chunk in nodes.chunk_files(0):
            body = bytearray(chunk.read_bytes())
            body[len(body) // 2] ^= 8
            chunk.write_bytes(body)
        assert opened["f1.bin"].read() == files["f1.bin"]
        assert server.sent_bytes > total, "a damaged chunk is not read"
        nodes.start()
        sent = server.sent_bytes
        assert opened["f2.bin"].read() == files["f2.bin"]
        assert nodes.status(0)["damaged_chunks"] == 1, "the daemon that is there again has fetched it again"
        assert server.sent_bytes <= sent + len(files["f2.bin"])
        for file in opened.values():
            file.close()


def test_a_store_is_named_like_any_other_folder(gyre: Path, tmp_path: Path) -> None:
    """A folder of the set, a pattern, a file; and what is missing is one error, whatever it is."""
    write_records(tmp_path / "train", files=3)
    local = batches(tmp_path / "train")
    files = {f"sub/train/{name}": body for name, body in files_of(tmp_path / "train").items()} | {"other": b"x"}
    write_files(tmp_path / "set", files)
    with StoreNodes(gyre, tmp_path, 2, str(tmp_path / "set")) as nodes:
        nodes.start()
        for node in (0, 1):
            url = url_of(nodes, node)
            assert batches(f"{url}/sub/train/") == local
            assert batches(f"{url}/sub/*/part-*.tfrecord") == local
            assert batches([f"{url}/sub/train/part-{i:02}.tfrecord" for i in range(3)]) == local
        with open_file(f"{url_of(nodes)}/sub/../other") as file:
            assert file.read() == b"x"
        staged = run_stage(gyre, f"{url_of(nodes)}/sub", "--to", tmp_path / "there")
        assert staged.returncode == 0, staged.stderr
        assert contents(tmp_path / "there") == {name[4:]: body for name, body in files.items() if name != "other"}
        with pytest.raises(NotFoundError, match="nothing"):
            open_file(f"{url_of(nodes)}/nothing")
        with pytest.raises(Error, match="no file is called"):
            Loader(f"{url_of(nodes)}/sub/train/none-*", FIELDS, batch_size=8)
    with pytest.raises(Error, match=r"no daemon of a store runs in .*/node0/store; `gyre store serve` starts one"):
        Loader(f"{url_of(nodes)}/sub/train", FIELDS, batch_size=8)
    with pytest.raises(Error, match="names no store"):
        open_file("store://relative/x")


@pytest.mark.needs_root
@pytest.mark.needs_programs("ip", "ethtool", "nginx")
def test_four_hosts_train_from_their_store_as_from_a_folder(gyre: Path, tmp_path: Path) -> None:
    """The compressed set in nginx, read once, by a rank on each of four hosts: bit for bit the same weights."""
    make = ["-m", "gyre.datasets", "cosmo", "--train", "16", "--validation", "4", "--size", "32", "--out"]
    subprocess.run([sys.executable, *make, str(tmp_path / "cosmo")], check=True, capture_output=True)
    total = sum(path.stat().st_size for path in (tmp_path / "cosmo").rglob("*") if path.is_file())
    hashes = []
    with Hosts.create(5, "1gbit") as hosts:
        prefixes = [hosts.command_on(host, []) for host in range(5)]
        addresses = [hosts.address(host) for host in range(5)]
        with (
            nginx(tmp_path / "cosmo", tmp_path, address=addresses[4], prefix=prefixes[4]) as source,
            StoreNodes(gyre, tmp_path, 4, source, ON_DEMAND, addresses=addresses[:4], prefixes=prefixes[:4]) as nodes,
        ):
            nodes.start()
            for name, place in (
                ("folder", str(tmp_path / "cosmo")),
                ("store", f"store://{tmp_path}/node$GYRE_RANK/store"),
            ):
                output = tmp_path / f"out-{name}"
                words = f"--data-dir {place} --output-dir {output} --epochs 1 --batch-size 1 --print-hashes"
                command = ["sh", "-c", f"exec {gyre.parent / 'gyre-cosmoflow'} {words}"]
                ended = run_ranks(hosts, [1] * 4, command, timeout_s=120)
                assert [rank.returncode for rank in ended] == [0] * 4, ended
                hashes.append([re.findall(r"[0-9a-f]{16}", rank.stdout + rank.stderr) for rank in ended])
            assert hashes[0][0]
            assert hashes[0] == hashes[1]
            assert nodes.total("source_bytes") == total
            # Of what a rank reads, its node owns about a quarter.
            assert total // 4 < nodes.total("relayed_bytes") == nodes.total("served_bytes")


def test_a_program_trains_from_a_store_as_from_a_folder(gyre: Path, tmp_path: Path) -> None:
    make = ["-m", "gyre.datasets", "cosmo", "--train", "8", "--validation", "4", "--size", "32", "--out"]
    subprocess.run([sys.executable, *make, str(tmp_path / "cosmo")], check=True, capture_output=True)
    hashes = []
    with StoreNodes(gyre, tmp_path, 2, str(tmp_path / "cosmo"), ON_DEMAND) as nodes:
        nodes.start()
        for i, place in enumerate((str(tmp_path / "cosmo"), url_of(nodes), url_of(nodes, 1))):
            command = [gyre.parent / "gyre-cosmoflow", "--data-dir", place, "--epochs", "1", "--batch-size", "2"]
            done = subprocess.run(
                [*map(str, command), "--output-dir", str(tmp_path / f"out{i}"), "--print-hashes"],
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            hashes.append(re.findall(r"[0-9a-f]{16}", done.stdout))
    assert hashes[0]
    assert hashes[0] == hashes[1] == hashes[2]
