"""The job file of the article about training with Horovod on Batch AI, as published, and a file share for it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

ARTICLE = Path(__file__).resolve().parents[1] / "data" / "batchai" / "job.json"
# Where the file looks for its scripts, below the share that it calls "external".
SCRIPTS = Path("storagedir", "horovod")


@contextlib.contextmanager
def make_share() -> Iterator[Path]:
    """A directory that the job's user can use, as a file share is."""
    with tempfile.TemporaryDirectory(prefix="gyre-share-") as folder:
        share = Path(folder)
        share.chmod(0o777)
        make_scripts_folder(share)
        yield share


def make_scripts_folder(share: Path) -> None:
    (share / SCRIPTS).mkdir(parents=True, exist_ok=True)
    for folder in (SCRIPTS.parent, SCRIPTS):
        (share / folder).chmod(0o777)


def script(share: Path, name: str, text: str) -> None:
    make_scripts_folder(share)
    file = share / SCRIPTS / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
