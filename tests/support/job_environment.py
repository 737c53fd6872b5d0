"""What a launcher gives the ranks of a job, without one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def job_environment(size: int, servers: int = 0) -> Iterator[tuple[list[dict[str, str]], list[dict[str, int]]]]:
    """The variables of each rank, and those that name a file descriptor, which is to be handed down. Parameter servers
    are the last ranks; the first of them hosts the rendezvous."""
    name = f"gyre-test-{secrets.token_hex(8)}"
    key = os.memfd_create("gyre-test-key", os.MFD_ALLOW_SEALING)
    os.write(key, secrets.token_bytes(32))
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(key, fcntl.F_ADD_SEALS, seals)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen(64)
        common = {
            "GYRE_SIZE": str(size),
            "GYRE_LOCAL_SIZE": str(size),
            "GYRE_RENDEZVOUS": f"unix:@{name}",
            "OMP_NUM_THREADS": "1",
            "GYRE_START_TIMEOUT_SECONDS": "120",
        }
        if servers:
            common["GYRE_SERVERS"] = str(servers)
        variables = [{**common, "GYRE_RANK": str(rank), "GYRE_LOCAL_RANK": str(rank)} for rank in range(size)]
        descriptors = [{"GYRE_KEY_FD": key} for _ in range(size)]
        descriptors[size - servers if servers else 0]["GYRE_RENDEZVOUS_FD"] = listener.fileno()
        try:
            yield variables, descriptors
        finally:
            os.close(key)
