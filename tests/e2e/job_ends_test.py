"""How jobs end on all their nodes: when they are stopped, and while their server is away."""

from __future__ import annotations

import re
import signal

import pytest
from job_server import JobServer
from running_job import wait_until

LONGEST_WAIT_SECONDS = 60
# A rank that saves what it has when it is asked to end.
SAVES = """
import os, signal, sys, time

def save(*_):
    for tick in range(8):
        print("rank", os.environ["RANK"], "saves", tick, flush=True)
        time.sleep(0.1)
    print("rank", os.environ["RANK"], "saved", flush=True)
    sys.exit(3)

signal.signal(signal.SIGTERM, save)
print("rank", os.environ["RANK"], "trains", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def pool(server: JobServer) -> JobServer:
    server.ok("cluster", "create", "pool", "-t", "2", "--mount", f"external={server.share}")
    (server.tmp_path / ".gyreignore").write_text("*\n!train.py\n")
    return server


def test_the_ranks_of_all_nodes_have_the_grace_when_a_job_is_stopped(pool: JobServer) -> None:
    (pool.tmp_path / "train.py").write_text(SAVES)
    ranks = ["--nnodes", "2", "-n", "4"]
    run = pool.start_verb("run", "--cluster", "pool", *ranks, "--job-name", "saves", "--", "python3", "train.py")

    def ranks_that(word: str) -> list[str]:
        return sorted(re.findall(rf"rank (\d) {word}\n", pool.verb("job", "logs", "saves").stdout))

    wait_until("all ranks train", lambda: ranks_that("trains") == ["0", "1", "2", "3"], LONGEST_WAIT_SECONDS)
    pool.ok("job", "stop", "saves")
    run.communicate(timeout=LONGEST_WAIT_SECONDS)
    assert ranks_that("saved") == ["0", "1", "2", "3"], pool.verb("job", "logs", "saves").stdout


def test_a_rank_ignores_no_signal_that_a_terminals_would_not(pool: JobServer) -> None:
    (pool.tmp_path / "train.py").write_text('print(open("/proc/self/status").read())')
    shown = pool.ok("run", "--cluster", "pool", "-n", "1", "--", "python3", "train.py")
    ignored = int(re.search(r"SigIgn:\s*([0-9a-f]+)", str(shown)).group(1), 16)
    # Python itself ignores SIGPIPE and SIGXFSZ.
    assert ignored & 0b111 == 0, shown


@pytest.mark.parametrize("code", ["0", "5"])
def test_a_job_that_ends_while_the_server_is_away_for_longer_than_its_lease_counts(pool: JobServer, code: str) -> None:
    pool.end()
    pool.start("--lease", "5")
    began = pool.share / "began"
    wait = f"while [ ! -e {pool.share}/away ]; do sleep 0.05; done"
    line = f"echo x >> {began}; {wait}; exit {code}"
    pool.ok("job", "submit", str(pool.job_file(pool.custom(line, nodes=2))), "-n", "away", "-c", "pool")
    wait_until("the job runs", began.exists, LONGEST_WAIT_SECONDS)
    pool.end(signal.SIGKILL)
    (pool.share / "away").touch()

    def records() -> int:
        return len(list(pool.folder.glob("nodes/*/agent/records/*.json")))

    wait_until("both nodes have given up", lambda: records() == 2, LONGEST_WAIT_SECONDS)
    pool.start("--lease", "5")
    done = pool.verb("job", "wait", "away")
    assert (done.returncode, began.read_text()) == (int(code), "x\n"), done.stderr
