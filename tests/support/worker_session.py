"""A session of gyre.workers in the test's own process."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from gyre.workers import _limits, _session

PACKAGE = Path(__file__).resolve().parents[2] / "python"
_MARKER = "GYRE_TEST_WORKERS"


def processes_with(marker: str) -> list[str]:
    """Those with this entry in their environment: "pid command line"."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker.encode() in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(f"{entry.name} {command}".strip())
        except OSError:
            continue  # It has just ended, or belongs to somebody else.
    return found


def cgroups_of(session: int) -> list[Path]:
    """Those of the workers of the session that is this process."""
    parents = [*_limits._parents("memory"), *_limits._parents("cpu")]
    return [folder for parent in parents for folder in parent.glob(f"gyre-worker-{session}-*")]


@contextlib.contextmanager
def worker_session(gyre: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Launches from `folder`, whose modules the workers can import; gives the entry in the environment of all that is
    launched. What is left at the end fails the test."""
    name = uuid.uuid4().hex
    marker = f"{_MARKER}={name}"
    monkeypatch.setenv(_MARKER, name)
    monkeypatch.setenv("GYRE_PROGRAM", str(gyre))
    monkeypatch.syspath_prepend(str(PACKAGE))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    yield marker
    session = _session.existing()
    _session.close()
    assert processes_with(marker) == []
    monkeypatch.undo()  # A test may have hidden the cgroups.
    assert cgroups_of(os.getpid()) == []
    assert session is None or not session.folder.exists()
