"""A keeper runs what its session orders: nobody without the session's key may give it an order, or another worker's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gyre.workers import _keeper
from gyre.workers._keeper import KEY, parts_of_order, prove

SECRET = "the session's key"
LONG = 60


class Impostor:
    """Answers at the session's socket, and does not know the key."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.listener.settimeout(LONG)

    def greet(self, nonce: str) -> tuple[socket.socket, dict[str, Any]]:
        """The next keeper that comes, after `nonce`: its connection, and what it says."""
        connection = self.listener.accept()[0]
        connection.settimeout(LONG)
        connection.sendall(json.dumps({"nonce": nonce}).encode() + b"\n")
        hello: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return connection, hello


@contextmanager
def keeper(impostor: Impostor, worker: str) -> Iterator[subprocess.Popen[str]]:
    program = subprocess.Popen(
        [sys.executable, "-I", "-S", _keeper.__file__, str(impostor.path), worker],
        env={**os.environ, KEY: SECRET},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[Impostor]:
    impostor = Impostor(tmp_path)
    yield impostor
    impostor.listener.close()


def order_to(made: Path) -> str:
    fields: dict[str, Any] = {
        "command": ["touch", str(made)],
        "environment": {},
        "dropped": [],
        "variables": {},
        "is_task": False,
        "folder": "/",
        "session_folder": str(made.parent),
        "cgroups": [],
        "data_bytes": None,
        "cores": None,
        "sshd": None,
        "shared": None,
    }
    return json.dumps(fields)


def is_refused(program: subprocess.Popen[str]) -> bool:
    _, said = program.communicate(timeout=LONG)
    return program.returncode == 1 and "session has ended" in said


def test_no_worker_signs_another_ones_order(impostor: Impostor, tmp_path: Path) -> None:
    """Its own proof is over a nonce that the other side chooses: it must not be a signature of an order."""
    order = order_to(tmp_path / "made")
    with keeper(impostor, "first") as victim, keeper(impostor, "second") as signer:
        connection, hello = impostor.greet("a")
        target = victim if hello["worker"] == "first" else signer
        wanted = [hello["nonce"] + order, json.dumps(parts_of_order(hello["nonce"], hello["worker"], order))]
        proofs = [hello["proof"], impostor.greet(wanted[0])[1]["proof"]]
        with keeper(impostor, "third"):
            proofs.append(impostor.greet(wanted[1])[1]["proof"])
        connection.sendall(json.dumps({"order": order, "proof": proofs[1]}).encode() + b"\n")
        assert is_refused(target)
        assert prove(SECRET, *parts_of_order(hello["nonce"], hello["worker"], order)) not in proofs
    assert not (tmp_path / "made").exists()


def test_an_order_is_for_the_worker_that_it_was_signed_for(impostor: Impostor, tmp_path: Path) -> None:
    """Two workers whose connections are crossed must not run each other's programs."""
    order = order_to(tmp_path / "made")
    with keeper(impostor, "first") as program:
        connection, hello = impostor.greet("a")
        proof = prove(SECRET, *parts_of_order(hello["nonce"], "second", order))
        connection.sendall(json.dumps({"order": order, "proof": proof}).encode() + b"\n")
        assert is_refused(program)
    with keeper(impostor, "first") as program:
        connection, hello = impostor.greet("a")
        proof = prove(SECRET, *parts_of_order(hello["nonce"], "first", order))
        connection.sendall(json.dumps({"order": order, "proof": proof}).encode() + b"\n")
        assert program.wait(LONG) == 0
    assert (tmp_path / "made").exists()
