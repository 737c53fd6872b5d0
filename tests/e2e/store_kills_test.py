"""Ranks that train from a store, and its daemons, are killed at random points: no sample is ever wrong, what a rank
lost is read again, and nothing is left behind. Twenty points, 200 with `./dev test --long`; GYRE_TEST_SEED repeats
them."""

from __future__ import annotations

import hashlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from effort import first_seed, rounds
from fault_server import fault_server
from staging import MIB, some_files
from store_nodes import StoreNodes, nothing_runs, read_all

from gyre.data import Loader, ints, raw, write_tfrecords

KILLS = rounds(20, 200)
RECORDS = 24
LONGEST_RUN_SECONDS = 120

# A rank: says when its loader is ready, then each step, then what it has seen.
RANK = f"""
import hashlib, sys
from gyre.data import Loader, ints, raw
fields = {{"x": raw("uint8", 20_000), "label": ints()}}
loader = Loader(sys.argv[1], fields, batch_size=8, shuffle="block", seed=int(sys.argv[2]), threads=2, output="numpy",
                records_per_file={RECORDS})
print("ready", flush=True)
seen = hashlib.sha256()
for batch in loader:
    seen.update(batch["x"].tobytes() + batch["label"].tobytes())
    print("step", flush=True)
print(seen.hexdigest(), flush=True)
"""


def write_set(folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    generator = np.random.default_rng(7)
    for file in range(8):
        examples = [
            {"x": generator.integers(0, 256, 20_000, dtype=np.uint8).tobytes(), "label": file * RECORDS + i}
            for i in range(RECORDS)
        ]
        write_tfrecords(folder / f"part-{file}.tfrecord", examples, compression="gzip" if file % 2 else None)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def what_is_seen(folder: Path, seed: int) -> str:
    fields = {"x": raw("uint8", 20_000), "label": ints()}
    seen = hashlib.sha256()
    for batch in Loader(
        folder, fields, batch_size=8, shuffle="block", seed=seed, output="numpy", records_per_file=RECORDS
    ):
        seen.update(batch["x"].tobytes() + batch["label"].tobytes())
    return seen.hexdigest()


def start_rank(place: str, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", RANK, place, str(seed)], stdout=subprocess.PIPE, text=True)


def run_rank(place: str, seed: int) -> str:
    command = [sys.executable, "-c", RANK, place, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_RUN_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def test_ranks_and_daemons_are_killed_at_random_points(gyre: Path, tmp_path: Path) -> None:
    seed = first_seed()
    print(f"GYRE_TEST_SEED={seed}")
    generator = random.Random(seed)
    files = write_set(tmp_path / "set")
    victims = ("rank", "own daemon", "other daemon")

    def slow(_name: str, _number: int) -> None:
        time.sleep(0.01)  # So that a kill finds something under way.

    with fault_server(files, slow) as server, StoreNodes(gyre, tmp_path, 2, server.url, "--on-demand") as nodes:
        nodes.start()
        for point in range(KILLS):
            victim = victims[point % len(victims)]
            node = generator.randrange(2)
            order = generator.randrange(3)
            # Part of what lies there is gone: a run reads from the disk, from the other node and from the source.
            for chunk in [*nodes.chunk_files(0), *nodes.chunk_files(1)]:
                if generator.random() < 0.5:
                    chunk.unlink()
            place = f"store://{nodes.store_dir(node)}/store"
            with start_rank(place, order) as rank:
                assert rank.stdout is not None
                # A rank whose daemon is gone before it has listed the set says so, and ends.
                assert rank.stdout.readline() == "ready\n"
                for _ in range(generator.randrange(RECORDS)):  # Of as many steps.
                    rank.stdout.readline()
                time.sleep(generator.random() * 0.02)
                if victim == "rank":
                    rank.kill()
                    rank.wait()
                    seen = run_rank(place, order)
                else:
                    dead = node if victim == "own daemon" else 1 - node
                    nodes.end(dead, signal.SIGKILL)
                    output = rank.stdout.read()
                    assert rank.wait() == 0, f"point {point}: the rank ended with its {victim}"
                    seen = output.split()[-1]
                    nodes.start(dead)
            assert seen == what_is_seen(tmp_path / "set", order), f"point {point}: {victim}"
        names = sorted(files)
        for _ in range(2):
            settled = server.sent_bytes
            for node in (0, 1):
                assert nodes.read(node, *names) == b"".join(files[name] for name in names)
        assert server.sent_bytes == settled, "what is there is not fetched again"
        for node in (0, 1):
            assert list((nodes.store_dir(node) / "store/new").iterdir()) == []
            assert nodes.end(node) == 0
            assert not (nodes.store_dir(node) / "store/socket").exists()
    assert nothing_runs(nodes)


def test_cat_reads_on_when_its_daemon_dies(gyre: Path, tmp_path: Path) -> None:
    """As the guide says of every program; it ended with "Connection reset by peer"."""
    files = {f"{i}.bin": random.Random(i).randbytes(5 << 20) for i in range(3)}
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 1, server.url, "--on-demand") as nodes:
        nodes.start()
        command = [gyre, "store", "cat", "--store-dir", nodes.store_dir(0), *sorted(files)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as reader:
            assert reader.stdout is not None
            first = reader.stdout.read(1)  # The rest does not fit into the pipe.
            nodes.end(0, signal.SIGKILL)
            output, errors = reader.communicate(timeout=60)
        assert reader.returncode == 0, errors.decode()
        assert first + output == b"".join(files[name] for name in sorted(files))


def target_of(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # Closed meanwhile.


def test_readers_are_killed_at_random_and_their_daemons_serve_on(gyre: Path, tmp_path: Path) -> None:
    """Twenty kills of programs in the middle of a reading, half of them waiting for another node: no connection stays
    open, no fetch is lost, nothing is read twice."""
    generator = random.Random(31)
    files = some_files(31, 6, MIB) | {"large.bin": generator.randbytes(66 * MIB)}
    names = sorted(files)
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 2, server.url, "--on-demand") as nodes:
        nodes.start()

        def open_files(node: int) -> int:
            """But for the chunks read most recently, which a daemon keeps open."""
            fds = Path(f"/proc/{nodes.daemons[node].pid}/fd")
            return sum("/store/chunks/" not in target_of(fd) for fd in fds.iterdir())

        for node in (0, 1):
            nodes.read(node, "part_000.bin")
        before = [open_files(node) for node in (0, 1)]
        for kill in range(20):
            command = [gyre, "store", "cat", "--store-dir", nodes.store_dir(kill % 2), *generator.sample(names, 7)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
                assert reader.stdout is not None
                reader.stdout.read(generator.randrange(1, 60 * MIB))
                reader.kill()
        for node in (0, 1):
            read_all(nodes, node, files)
        assert server.sent_bytes == sum(map(len, files.values()))
        for node in (0, 1):
            deadline = time.monotonic() + 60
            while open_files(node) > before[node] + 6:  # Some of the other node's connections are kept.
                assert time.monotonic() < deadline, open_files(node)
                time.sleep(0.05)
            assert nodes.end(node) == 0
