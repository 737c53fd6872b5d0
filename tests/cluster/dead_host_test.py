"""The host of rank 0 holds the rendezvous and the coordinator. When it dies at any moment, every surviving rank ends
with the true cause: not with a bug of ours, and not with a signal."""

from __future__ import annotations

import os
import random
import re
import secrets
import signal
import subprocess
import time
from pathlib import Path

import pytest
from effort import first_seed, rounds
from hosts import Hosts, rank_environments

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("ip", "ethtool")]

LIMITS = {
    "GYRE_START_TIMEOUT_SECONDS": "10",
    "GYRE_COLLECTIVE_TIMEOUT_SECONDS": "30",
    "GYRE_STALL_FAILURE_SECONDS": "30",
}
LONGEST_SECONDS = 60.0
MORE_OPERATIONS_THAN_IT_LIVES = 1_000_000
TOLD = 3
# Either names a rank of the dead host, which has gone; or the rendezvous, when it died before it had one.
CAUSE = re.compile(
    r"rank [01]\b.*(died|lost its connection|closed the connection|reset|has ended|took too long|unreachable|left)"
    r"|no connection to tcp:10\.77\.0\.1:"
)


def kill(hosts: Hosts) -> None:
    for process in subprocess.run(
        ["ip", "netns", "pids", hosts.namespace(0)], capture_output=True, text=True, check=True
    ).stdout.split():
        os.kill(int(process), signal.SIGKILL)


def cut(hosts: Hosts) -> None:
    subprocess.run(["ip", "-n", hosts.namespace(0), "link", "set", "eth0", "down"], check=True)


def lose_rank_zeros_host(program: Path, folder: Path, seed: int, how: str) -> None:
    generator = random.Random(seed)
    count = generator.choice((2, 3))
    places = [0, 0, *(host for host in range(1, count) for _ in range(generator.choice((1, 2))))]
    delay = generator.uniform(0, 1.5)
    what = f"GYRE_TEST_SEED={seed} {how} after {delay:.3f} s, ranks on hosts {places}"
    print(what, flush=True)
    folder.mkdir()
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(32))
    command = [str(program), str(seed), str(MORE_OPERATIONS_THAN_IT_LIVES)]
    with Hosts.create(count) as hosts:
        ranks = []
        for rank, environment in enumerate(rank_environments(hosts, places, key)):
            with (folder / f"{rank}.txt").open("wb") as output:
                variables = {**LIMITS, **environment}
                ranks.append(hosts.start(places[rank], command, stdout=output, stderr=output, environment=variables))
        time.sleep(delay)  # The moment of the death, which is random.
        (kill if how == "killed" else cut)(hosts)
        until = time.monotonic() + LONGEST_SECONDS
        for rank, process in enumerate(ranks):
            if places[rank] == 0:
                continue
            try:
                code = process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                code = None
            said = (folder / f"{rank}.txt").read_text(errors="replace")
            seen = f"{what}: rank {rank} ended with {code}:\n{said}"
            assert code == TOLD, seen
            assert "bug in Gyre" not in said, seen
            (told,) = [line for line in said.splitlines() if line.startswith("told: ")]
            assert CAUSE.search(told), seen


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_whatever_happens_to_rank_zeros_host_the_others_tell_it(gyre: Path, tmp_path: Path, how: str) -> None:
    program = gyre.parent.parent / "tests" / "security" / "gyre_sums_rank"
    tries = rounds(2, 20) if how == "killed" else rounds(1, 10)  # A cut takes seconds to be noticed.
    for seed in range(first_seed(), first_seed() + tries):
        lose_rank_zeros_host(program, tmp_path / str(seed), seed, how)
