"""What a session adds to the PATH of its process, and so of its workers."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from gyre.launch.program import find_program


def write_horovodrun(folder: Path) -> None:
    """Makes `folder`, with a `horovodrun` that is `gyre run`. NotFoundError if there is no `gyre`."""
    program = find_program()
    folder.mkdir()
    file = folder / "horovodrun"
    file.write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} run --horovod-compat "$@"\n')
    file.chmod(0o700)


def change_path(first: Path | None = None, last: Path | None = None, remove: Path | None = None) -> None:
    """Of this process: adds folders, or removes one."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders = [folder for folder in folders if remove is None or folder != str(remove)]
    before = [str(first)] if first is not None else []
    after = [str(last)] if last is not None else []
    os.environ["PATH"] = os.pathsep.join([*before, *folders, *after])
