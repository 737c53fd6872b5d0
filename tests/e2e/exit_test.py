"""How a rank's process ends while strangers knock at its sockets."""

from __future__ import annotations

import os
import sys

from running_job import StartJob

# Asks Unix sockets with these names for their proof without pause, as a rank would, until nobody listens.
FLOOD = r"""
import socket, sys, time
opening = b"GYRELINK" + (4).to_bytes(4, "little") + b"\0\0\1\0" + b"\1\0\0\0" + bytes(52)
names = ["\0" + name for name in sys.argv[1:]]
held = []
print("begun", flush=True)
while names:
    for name in list(names):
        for _ in range(20):
            stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                stranger.connect(name)
                stranger.send(opening)
                held.append(stranger)
            except ConnectionRefusedError:
                names.remove(name)
                break
            except OSError:
                stranger.close()
    while len(held) > 900:
        held.pop(0).close()
    time.sleep(0.001)
"""

RANK = f"""
import subprocess, sys
from pathlib import Path
import torch
import gyre.torch as hvd

hvd.init()
own = {{path.resolve().name for path in Path("/proc/self/fd").iterdir()}}
lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
names = [line[7][1:] for line in lines if line[3] == "00010000" and f"socket:[{{line[6]}}]" in own]
assert names, "this rank listens nowhere"
flood = subprocess.Popen([sys.executable, "-c", {FLOOD!r}, *names], stdout=subprocess.PIPE, text=True)
assert flood.stdout.readline() == "begun\\n"
model = torch.nn.Linear(3, 3)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), unequal_replicas="allow")
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
hvd.add_process_set([0, 1])
hvd.barrier()
"""


def test_ranks_end_well_while_strangers_connect(start_job: StartJob) -> None:
    """Their service threads answered with a library that was being cleaned up: half the jobs crashed."""
    for _ in range(10 if os.environ.get("GYRE_TEST_LONG") == "1" else 2):
        job = start_job("-n", "3", "--", sys.executable, "-c", RANK)
        assert job.wait() == 0, job.stderr
