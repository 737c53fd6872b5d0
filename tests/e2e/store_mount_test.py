"""`gyre store mount`: the files of a store for programs that know nothing of it, through the kernel's own FUSE."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fault_server import fault_server
from staging import MIB, some_files
from store_nodes import StoreNodes

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_programs("fusermount3"),
    pytest.mark.skipif(
        not Path("/dev/fuse").exists(), reason="/dev/fuse is missing: a container needs --device /dev/fuse"
    ),
]


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_mounted(place: Path) -> bool:
    return any(line.split()[1] == str(place) for line in Path("/proc/mounts").read_text().splitlines())


@contextmanager
def mounted(gyre: Path, nodes: StoreNodes, place: Path, node: int = 0) -> Iterator[subprocess.Popen[str]]:
    place.mkdir(exist_ok=True)
    command = [gyre, "store", "mount", "--store-dir", nodes.store_dir(node), place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as mount:
        try:
            assert mount.stdout is not None
            line = mount.stdout.readline()
            assert "is mounted in" in line, mount.communicate()
            yield mount
        finally:
            mount.terminate()
            mount.wait(60)
            wait_until(lambda: not is_mounted(place))


def test_other_programs_read_a_store_as_a_folder(gyre: Path, tmp_path: Path) -> None:
    """cmp, find and stat, and random reads, on a node that has not fetched it; nothing can be written."""
    files = {f"set/a/{name}": body for name, body in some_files(1, 20).items()}
    files |= {"large.bin": random.Random(1).randbytes(66 * MIB)}
    for name, body in files.items():
        (tmp_path / "web" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "web" / name).write_bytes(body)
    place = tmp_path / "place"
    with StoreNodes(gyre, tmp_path, 2, str(tmp_path / "web"), "--on-demand") as nodes:
        nodes.start()
        with mounted(gyre, nodes, place, 1) as mount:
            assert sorted(os.listdir(place)) == ["large.bin", "set"]
            subprocess.run(["diff", "-r", tmp_path / "web", place], check=True)
            found = {str(path.relative_to(place)): path.stat() for path in place.rglob("*") if path.is_file()}
            assert {name: status.st_size for name, status in found.items()} == {n: len(b) for n, b in files.items()}
            assert all(status.st_mode & 0o222 == 0 for status in found.values())
            generator = random.Random(2)
            with (place / "large.bin").open("rb", buffering=0) as file:
                for _ in range(100):
                    at, count = generator.randrange(66 * MIB + 100), generator.randrange(300_000)
                    assert os.pread(file.fileno(), count, at) == files["large.bin"][at : at + count]
            for act in (
                lambda: (place / "new").write_bytes(b"x"),
                lambda: (place / "large.bin").write_bytes(b"x"),
                (place / "large.bin").unlink,
            ):
                with pytest.raises(OSError, match="Read-only"):
                    act()
            with pytest.raises(FileNotFoundError):
                (place / "none").stat()
        assert mount.returncode == 0
        assert os.listdir(place) == []


def test_a_killed_mount_is_gone(gyre: Path, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a").write_bytes(b"abc")
    place = tmp_path / "place"
    with StoreNodes(gyre, tmp_path, 1, str(tmp_path / "set")) as nodes:
        nodes.start()
        for sent in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
            with mounted(gyre, nodes, place) as mount:
                assert (place / "a").read_bytes() == b"abc"
                mount.send_signal(sent)
                mount.wait(60)
                wait_until(lambda: not is_mounted(place))
                assert os.listdir(place) == []


def test_a_mount_hides_no_other_one(gyre: Path, tmp_path: Path) -> None:
    """Nor an empty one, whose folder looks as any empty folder does; and libfuse adds nothing to what is said."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a").write_bytes(b"abc")
    place = tmp_path / "place"
    with StoreNodes(gyre, tmp_path, 1, str(tmp_path / "set")) as nodes:
        nodes.start()
        words = [gyre, "store", "mount", "--store-dir", nodes.store_dir(0), place]
        with mounted(gyre, nodes, place) as mount:
            empty = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {place} && exec "$@"', "sh"]
            for prefix in ([], empty):
                done = subprocess.run([*prefix, *words], capture_output=True, text=True, timeout=60, check=False)
                assert done.returncode == 2, done
                assert "something is mounted there already" in done.stderr
            assert (place / "a").read_bytes() == b"abc"
            mount.terminate()
            assert mount.stderr is not None
            assert mount.stderr.read() == ""


def test_a_file_that_has_changed_is_an_error_and_no_mixture(gyre: Path, tmp_path: Path) -> None:
    files = {"a.bin": random.Random(3).randbytes(4 * MIB)}
    with fault_server(files) as server, StoreNodes(gyre, tmp_path, 1, server.url, "--on-demand") as nodes:
        nodes.start()
        with mounted(gyre, nodes, tmp_path / "place") as mount:
            server.etags["a.bin"] = '"another"'
            with pytest.raises(OSError) as failure:  # noqa: PT011
                (tmp_path / "place/a.bin").read_bytes()
            assert failure.value.errno == errno.EIO
            mount.terminate()
            assert mount.stderr is not None
            assert "has changed since it was listed" in mount.stderr.read()


def test_what_is_missing_is_one_sentence(gyre: Path, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a").write_bytes(b"abc")
    (tmp_path / "place").mkdir()
    with StoreNodes(gyre, tmp_path, 1, str(tmp_path / "set")) as nodes:
        nodes.start()
        words = [gyre, "store", "mount", "--store-dir", nodes.store_dir(0), tmp_path / "place"]
        without_device = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev; exec "$@"', "sh"]
        for prefix, environment, said in [
            ([], {"PATH": "/nonexistent"}, "fusermount3 is not in PATH (package fuse3)"),
            (without_device, {"PATH": os.environ["PATH"]}, "/dev/fuse cannot be opened: No such file or directory"),
        ]:
            done = subprocess.run(
                [*(shutil.which(p) or p for p in prefix), *words],
                env=environment, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 1, done
            assert said in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    none = subprocess.run([*words[:-2], tmp_path, tmp_path / "place"], capture_output=True, text=True, check=False)
    assert none.returncode == 1
    assert "no daemon of a store runs in" in none.stderr
