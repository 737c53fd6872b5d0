"""Training with several real ranks: the same bits as one process, and a clean end whatever dies, whenever."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from effort import rounds, seeded_random
from machine import Stopwatch
from running_job import StartJob, block_of, wait_until

RANKS = 4
HASH = re.compile(r"hash epoch (\d+) step (\d+) rank (\d+) ([0-9a-f]{16})")


@pytest.fixture(scope="session")
def program() -> str:
    found = shutil.which("gyre-cifar10")
    assert found, "gyre-cifar10 is not on PATH: run ./dev build, or put build/release/bin there"
    return found


def hashes(output: str) -> dict[tuple[int, int], set[str]]:
    """The ranks' hashes after each step."""
    found: dict[tuple[int, int], set[str]] = {}
    for epoch, step, _, value in HASH.findall(output):
        found.setdefault((int(epoch), int(step)), set()).add(value)
    return found


def left_in_the_system() -> set[str]:
    """What a job could forget: files of shared memory, and sockets with a name of ours."""
    sockets = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@gyre-" in line}
    return sockets | {f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if "gyre" in name}


def test_four_ranks_train_with_the_bits_of_one_process_that_plays_them(
    start_job: StartJob, program: str, data: Path, tmp_path: Path
) -> None:
    flags = ["--data-dir", str(data), "--batch-size", "10", "--epochs", "2", "--print-hashes", "--augment", "flip"]
    job = start_job("-n", str(RANKS), "--", program, *flags, "--output-dir", "ranks", timeout=240)
    assert job.wait() == 0, job.stderr
    together = hashes(job.stdout)
    assert len(HASH.findall(job.stdout)) == RANKS * len(together) >= RANKS * 2
    assert all(len(values) == 1 for values in together.values()), "replicas differ"
    alone = subprocess.run(
        [program, *flags, "--output-dir", "played", "--play-ranks", str(RANKS)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert hashes(alone.stdout) == together


def test_only_rank_0_writes_and_all_ranks_resume_from_it(start_job: StartJob, program: str, data: Path) -> None:
    """2 + 2 epochs on four ranks end where 4 epochs end."""
    flags = ["--", program, "--data-dir", str(data), "--batch-size", "10", "--print-hashes"]
    whole = start_job("-n", str(RANKS), *flags, "--epochs", "3", "--output-dir", "whole", timeout=240)
    assert whole.wait() == 0, whole.stderr
    for epochs in ("1", "3"):
        part = start_job("-n", str(RANKS), *flags, "--epochs", epochs, "--resume", "--output-dir", "parts", timeout=240)
        assert part.wait() == 0, part.stderr
    last = max(hashes(whole.stdout))
    assert hashes(part.stdout)[last] == hashes(whole.stdout)[last]


def test_a_rank_killed_at_any_moment_is_named_within_a_second_and_leaves_nothing(
    start_job: StartJob, program: str, data: Path, tmp_path: Path
) -> None:
    moments = seeded_random()
    before = left_in_the_system()
    for attempt in range(rounds(12, 50)):
        victim = attempt % RANKS
        timeline = tmp_path / "timeline.json"
        timeline.unlink(missing_ok=True)
        job = start_job(
            "-v", "-n", str(RANKS), "--timeline", str(timeline), "--",
            program, "--data-dir", str(data), "--batch-size", "2", "--epochs", "1000", "--output-dir", f"m{attempt}",
        )  # fmt: skip
        pids = job.rank_pids(RANKS)
        time.sleep(moments.random() * 0.6)  # Somewhere between the first instruction and the middle of training.
        with Stopwatch() as watch:
            os.kill(pids[victim], signal.SIGKILL)
            assert job.wait() == 128 + signal.SIGKILL, job.stderr
        assert watch.seconds < 1.0, watch
        block = block_of(job)
        assert f"rank {victim} of {RANKS} failed first" in block["title"]
        assert "SIGKILL" in block["title"]
        assert not job.processes()
        if timeline.exists() and timeline.stat().st_size:
            assert isinstance(json.loads(timeline.read_text()), list)
        shutil.rmtree(tmp_path / f"m{attempt}", ignore_errors=True)
    # Other tests may run beside this one; theirs end too.
    appeared = left_in_the_system() - before
    wait_until("sockets of the jobs are gone", lambda: appeared.isdisjoint(left_in_the_system()), seconds=240)


def test_a_rank_that_fails_tells_the_others_why(start_job: StartJob, program: str, data: Path, tmp_path: Path) -> None:
    """Rank 0 alone writes checkpoints; when it cannot, its reason is what everybody reports."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "checkpoints").write_text("a file where a folder should be")
    job = start_job(
        "-n", "2", "--log-dir", "logs", "--",
        program, "--data-dir", str(data), "--epochs", "1", "--output-dir", "model",
    )  # fmt: skip
    assert job.wait() == 1
    # Both ranks exit with 1, and rank 1, which has nothing to clean up, is usually the first.
    assert "rank 0 of 2 failed first" in block_of(job)["title"]
    assert "checkpoints" in job.stderr
    assert re.search(r"rank 0 \(host .+\) failed: ", (tmp_path / "logs" / "rank-1.log").read_text())
