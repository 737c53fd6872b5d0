"""A session's folder: its socket, and the keys of its ssh servers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "gyre-workers-"
_LONGEST_SOCKET_PATH = 100


def make_folder() -> tuple[Path, int]:
    """Private to this user, with a path that is short enough for a socket in it, and locked as long as the descriptor
    is open: a folder that is not locked is that of a session that was killed."""
    place = None if len(tempfile.gettempdir()) + len(_PREFIX) + 20 <= _LONGEST_SOCKET_PATH else "/tmp"
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        lock = _lock(folder)
        if lock is not None:
            return folder, lock
        # Another session has just taken it for one that is to be removed.


def remove_stale_folders(place: Path) -> None:
    """Removes those of this user's sessions that were killed."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.geteuid() and (lock := _lock(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """None if the folder is locked, or gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever had the lock before may have removed the folder.
        if os.fstat(descriptor).st_nlink > 0 and folder.exists():
            return descriptor
    os.close(descriptor)
    return None
