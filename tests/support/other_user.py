"""Processes of another user of this machine, for tests that root runs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PYTHON = "/usr/bin/python3"  # Ours may be in a folder that others cannot enter.
NOBODY = 65534

# Binds the names in its arguments, and says so. Answers those who connect with a key of its own, if it listens.
SQUATTER = """
import select, socket, sys
listens, names = sys.argv[1] == "listens", sys.argv[2:]
sockets = []
for name in names:
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(chr(0) + name)
    if listens:
        bound.listen(64)
    sockets.append(bound)
print("bound", flush=True)
while True:
    for ready in select.select(sockets if listens else [], [], [])[0]:
        connection, _ = ready.accept()
        try:
            connection.sendall(b"k" * 32)
        except OSError:
            pass
"""


@contextmanager
def squatter(names: Sequence[str], *, listens: bool = True) -> Iterator[int]:
    """Another user's process that holds the names."""
    command = [PYTHON, "-c", SQUATTER, "listens" if listens else "binds", *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, user=NOBODY, group=NOBODY, cwd="/") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"bound\n"
            yield process.pid
        finally:
            process.kill()
