"""Any user of a machine can predict and bind the names at which ranks without a secret meet there: the job runs all the
same, or ends at once with a sentence that names the user and the process; and its key goes to nobody else."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from machine import Stopwatch, free_port
from other_user import NOBODY, PYTHON, squatter

pytestmark = pytest.mark.needs_root  # To be another user.

PLACES = 16  # As in gyre/group/internal/rendezvous/local_key.cc.


def torchrun_variables(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GYRE_START_TIMEOUT_SECONDS": "60",
    }


def names_of(port: int) -> list[str]:
    """Where the ranks of such a job meet."""
    digest = hashlib.sha256(f"torchrun none 127.0.0.1 {port} 0".encode()).hexdigest()[:16]
    return [f"gyre-torchrun-{digest}-{os.getuid()}-key-{place}" for place in range(PLACES)]


def start(probe: Path, port: int, extra: dict[str, str] | None = None) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [str(probe)],
            env={**torchrun_variables(rank, 2, port), **(extra or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]


def outcomes(ranks: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    ended = []
    for rank in ranks:
        output, _ = rank.communicate(timeout=120)
        ended.append((rank.returncode, output))
    return ended


@pytest.fixture
def probe(gyre: Path) -> Path:
    return gyre.parent.parent / "tests" / "cluster" / "gyre_join_probe"


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("held", [1, PLACES - 1])
def test_names_that_another_user_holds_are_passed_over(probe: Path, held: int, listens: bool) -> None:
    port = free_port()
    with squatter(names_of(port)[:held], listens=listens):
        for code, output in outcomes(start(probe, port)):
            assert code == 0, output
            assert "size=2" in output


def test_another_user_who_holds_all_names_is_named_at_once(probe: Path) -> None:
    port = free_port()
    with squatter(names_of(port)) as process, Stopwatch() as watch:
        for code, output in outcomes(start(probe, port)):
            assert code != 0
            (line,) = [line for line in output.splitlines() if "another user" in line]
            assert f"process {process} of user {NOBODY} (nobody)" in line
            assert "gyre run" in line
    assert watch.seconds < 20, watch


def test_names_that_are_held_without_listening_are_one_sentence(probe: Path) -> None:
    port = free_port()
    with squatter(names_of(port), listens=False):
        first, second = start(probe, port)
        ((code, output),) = outcomes([first])
        second.kill()  # A launcher does that. By itself it would look for rank 0 until its time is up.
        second.communicate()
    assert code != 0
    (line,) = [line for line in output.splitlines() if "without listening there" in line]
    assert "gyre run" in line


ASKER = """
import socket, struct, sys, time
until = time.monotonic() + 60
while time.monotonic() < until:
    asker = socket.socket(socket.AF_UNIX)
    try:
        asker.connect(chr(0) + sys.argv[1])
    except ConnectionRefusedError:
        time.sleep(0.005)
        continue
    try:
        asker.sendall(struct.pack("<I", 1))
        print("got", len(asker.recv(100)), flush=True)
    except OSError:
        print("got 0", flush=True)
    break
"""


def test_another_user_who_asks_for_the_key_gets_nothing(probe: Path) -> None:
    port = free_port()
    command = [PYTHON, "-c", ASKER, names_of(port)[0]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, user=NOBODY, group=NOBODY, cwd="/") as asker:
        first = subprocess.Popen(
            [str(probe)],
            env=torchrun_variables(0, 2, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert asker.communicate(timeout=60)[0] == "got 0\n"
        second = subprocess.Popen(
            [str(probe)],
            env=torchrun_variables(1, 2, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for code, output in outcomes([first, second]):
            assert code == 0, output


def test_with_a_key_file_no_name_can_be_predicted(probe: Path, tmp_path: Path) -> None:
    port = free_port()
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(32))
    old = hashlib.sha256(f"torchrun none 127.0.0.1 {port} 0".encode()).hexdigest()[:16]
    names = [*names_of(port), f"gyre-torchrun-{old}-{os.getuid()}", f"gyre-torchrun-{old}-{os.getuid()}-key"]
    with squatter(names):
        for code, output in outcomes(start(probe, port, {"GYRE_KEY_FILE": str(key)})):
            assert code == 0, output
