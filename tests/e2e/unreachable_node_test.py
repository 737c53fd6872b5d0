"""A node that does not answer before the first rank is a loss of the node, not a failure of the job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from job_server import JobServer

PYTHON = "/usr/bin/python3"
# In its first attempt it stops the shell of its other node, by which `gyre run` reaches that.
SCRIPT = """
import os, signal, sys
from pathlib import Path
once = Path(sys.argv[1]) / "once"
if once.exists():
    sys.exit(0)
once.touch()
mark = f"GYRE_JOB_ATTEMPT={os.environ['GYRE_JOB_ATTEMPT']}".encode()
for process in Path("/proc").glob("[0-9]*"):
    try:
        words = (process / "cmdline").read_bytes().split(b"\\0")
        variables = (process / "environ").read_bytes().split(b"\\0")
    except OSError:
        continue
    if b"agent-shell-server" in words and words[words.index(b"--node") + 1] == b"1" and mark in variables:
        os.kill(int(process.name), signal.SIGSTOP)
        print("stopped", flush=True)
"""


@pytest.fixture
def server(gyre: Path, tmp_path: Path, evidence: list[Path]) -> Iterator[JobServer]:
    server = JobServer(gyre, tmp_path)
    evidence.append(server.log)
    server.start()
    try:
        yield server
    finally:
        server.close()


def test_a_job_of_which_no_rank_could_be_started_is_queued_again(server: JobServer) -> None:
    server.share.chmod(0o1777)
    server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
    (server.share / "script.py").write_text(SCRIPT)
    mount = "$AZ_BATCHAI_MOUNT_ROOT/external"
    line = f'{PYTHON} {mount}/script.py {mount} && exec "$GYRE_PROGRAM" run -H $AZ_BATCH_HOST_LIST -- echo ran'
    file = server.job_file({"cluster": {"id": "pool"}} | server.custom(line, nodes=2))
    server.ok("job", "submit", str(file), "--name", "job")
    done = server.verb("job", "wait", "job")
    events = server.ok("job", "events", "job")
    assert done.returncode == 0, events
    assert "cannot start a rank on host" in events
    assert "notStarted" in events
    assert server.ok("job", "logs", "job").count("] ran\n") == 2
