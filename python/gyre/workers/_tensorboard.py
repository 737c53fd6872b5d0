"""TensorBoard for a session, as the platforms' utility for TensorFlow starts it."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

from gyre.errors import Error, TimeoutError, UnsupportedError

_LONGEST_START_SECONDS = 60.0
_LONGEST_END_SECONDS = 5.0
# Ends with the session, however that ends: its end of the pipe closes then.
_PROGRAM = """
import os, runpy, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
runpy.run_module("tensorboard.main", run_name="__main__")
"""
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:\d+/")


def tensorboard(logdir: str | os.PathLike[str]) -> tuple[str, int]:
    """Starts TensorBoard for the curves in `logdir`, which may appear later, on a free port of this machine's loopback
    interface. Returns its URL and its process ID. It ends with this process, or when you end it.

    UnsupportedError if this Python has no TensorBoard; Error with its last lines if it does not start, and TimeoutError
    after a minute."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UnsupportedError(f"{sys.executable} has no TensorBoard: pip install tensorboard")
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _PROGRAM,
            "--logdir",
            str(Path(logdir).absolute()),
            "--host",
            "127.0.0.1",
            "--port",
            "0",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the session's program.
    )
    atexit.register(_end, process)
    try:
        url = _wait_for_address(process)
    except BaseException:
        _end(process)
        raise
    return url, process.pid


def _wait_for_address(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    until = time.monotonic() + _LONGEST_START_SECONDS
    said = b""
    while (found := _ADDRESS.search(said)) is None:
        ready, _, _ = select.select([process.stderr], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise TimeoutError(
                f"TensorBoard did not start within {_LONGEST_START_SECONDS:.0f} seconds{_last_lines(said)}"
            )
        text = os.read(process.stderr.fileno(), 1 << 16)
        if not text:
            raise Error(f"TensorBoard ended with exit code {process.wait()}{_last_lines(said)}")
        said += text
    # What it says from now on is not wanted, but must not fill the pipe.
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return found.group().decode()


def _last_lines(said: bytes) -> str:
    lines = said.decode(errors="replace").splitlines()[-5:]
    return "".join(f"\n  {line}" for line in lines)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_LONGEST_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
