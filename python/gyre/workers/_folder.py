"""A session's folder: its socket, and the keys of its ssh servers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

_PREFIX = "gyre-workers-"
_LONGEST_SOCKET_PATH = 100
_YOUNGEST_STALE_SECONDS = 60  # A younger folder may be one that is being made.


def make_folder() -> Path:
    """Private to this user, with a path that is short enough for a socket in it."""
    name = tempfile.mkdtemp(prefix=_PREFIX)
    if len(name) > _LONGEST_SOCKET_PATH:
        os.rmdir(name)
        name = tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp")
    return Path(name)


def lock_of(folder: Path) -> IO[str]:
    """The folder's lock, held as long as the file is open. OSError if another process holds it."""
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def remove_stale_folders() -> None:
    """Removes those of this user's sessions that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            age = time.time() - folder.stat().st_mtime
            if folder.stat().st_uid == os.geteuid() and age > _YOUNGEST_STALE_SECONDS and (folder / "lock").exists():
                with lock_of(folder):
                    shutil.rmtree(folder, ignore_errors=True)
