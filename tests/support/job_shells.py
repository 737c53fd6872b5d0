"""What `gyre job shell` promises on the nodes of every driver."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from job_server import JobServer
from process_tree import is_alive
from running_job import wait_until

LONGEST_SECONDS = 60


def shell(server: JobServer, *words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """One command, or what a shell reads, to its end."""
    command = [str(server.gyre), "job", "shell", *words]
    return subprocess.run(
        command, input=data, capture_output=True, env=server.environment, timeout=LONGEST_SECONDS, check=False
    )


def expect_shells_on(server: JobServer, cluster: str, nodes: Sequence[Path]) -> None:
    """On two of the nodes, whose job folders lie below these; the job and all that its shells have begun end."""
    program = 'touch "$AZ_BATCHAI_MOUNT_ROOT/external/shells-$GYRE_RANK"; exec sleep 1000'
    job = server.job_file({"nodeCount": 2, "gyreSettings": {"program": ["sh", "-c", program], "processesPerNode": 2}})
    server.ok("job", "submit", str(job), "--cluster", cluster, "--name", "shells")
    wait_until("the job runs", lambda: len(list(server.share.glob("shells-*"))) == 4)
    data = os.urandom(300_000)
    names = []
    for rank in range(4):
        line = f'echo -n {rank} >> mark; echo "$AZ_BATCH_NODE_ID" >&2; cat; exit {40 + rank}'
        done = shell(server, "shells", str(rank), "--", "bash", "-c", line, data=data)
        assert (done.returncode, done.stdout == data) == (40 + rank, True), done.stderr
        names.append(done.stderr.decode().strip())
    assert names[0] == names[1] != names[2] == names[3]
    # Each in the job's folder of its own host.
    marks = [[file.read_text() for file in node.glob("gyre-*/jobs/shells/mark")] for node in nodes]
    assert sorted(marks, reverse=True)[:2] == [["23"], ["01"]]
    assert sum(map(len, marks)) == 2
    by_name = shell(server, "shells", names[2], "-t", "--", "sh", "-c", "tty; stty size; kill -TERM $$")
    assert b"/dev/" in by_name.stdout
    assert b"24 80" in by_name.stdout
    assert by_name.returncode == 128 + 15
    left = shell(server, "shells", "--", "sh", "-c", "setsid nohup sleep 1000 > /dev/null 2>&1 & echo $!")
    pid = int(left.stdout)
    assert is_alive(pid)
    server.ok("job", "stop", "shells")
    server.verb("job", "wait", "shells")
    wait_until("what a shell has left has ended", lambda: not is_alive(pid))
    assert "left" not in server.ok("job", "events", "shells")
