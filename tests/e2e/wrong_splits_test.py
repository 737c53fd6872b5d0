"""Splits that do not add up on one rank alone are that rank's own error, raised before anything is sent; the others,
which wait for its rows, must hear of it from the call or the script's end, and not from a time limit.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from running_job import StartJob

PACKAGE = Path(__file__).resolve().parent.parent.parent / "python"
ENVIRONMENT = {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"}
LONGEST_SECONDS = 120.0
# Each rank says how long its call took, and what came of it.
CALL = """
import time
def call(function):
    start = time.monotonic()
    try:
        function()
    except Exception as error:
        print(type(error).__name__, f"after {time.monotonic() - start:.1f} s", error)
        raise
"""
HOROVOD = f"""
import torch
import gyre.torch as hvd
{CALL}
hvd.init()
splits = [2, 1, 1] if hvd.rank() == 1 else [1, 1, 1]
hvd.barrier()
call(lambda: hvd.alltoall(torch.ones(3), splits))
"""
TORCH = f"""
import torch
import gyre.distributed
import torch.distributed as dist
{CALL}
dist.init_process_group("gyre")
splits = [2, 1, 1] if dist.get_rank() == 1 else [1, 1, 1]
dist.barrier()
call(lambda: dist.all_to_all_single(torch.zeros(3), torch.ones(3), [1, 1, 1], splits))
"""


@pytest.mark.parametrize(
    ("script", "others", "reason"),
    [
        (HOROVOD, {"AbortedError"}, r"rank 1 .*splits \[2, 1, 1\] do not"),
        # The call's failure is told at once, and the script's end may overtake it.
        (
            TORCH,
            {"AbortedError", "MismatchError"},
            r"rank 1 .*splits \[2, 1, 1\] do not|alltoall .*on ranks 0, 2; a call that raised an error there on rank 1",
        ),
    ],
    ids=["horovod", "torch"],
)
def test_every_rank_is_told_which_rank_had_the_wrong_splits(
    start_job: StartJob, script: str, others: set[str], reason: str
) -> None:
    command = [sys.executable, "-u", "-c", script]
    job = start_job("-n", "3", "--", *command, env={**os.environ, **ENVIRONMENT}, timeout=LONGEST_SECONDS)
    assert job.wait() == 1, job.stderr
    said = re.findall(r"^\[(\d)\] (\w+) after (\S+) s (.*)$", job.stdout, re.MULTILINE)
    assert sorted(rank for rank, *_ in said) == ["0", "1", "2"], job.stdout
    for rank, kind, seconds, words in said:
        assert kind in ({"InvalidArgumentError"} if rank == "1" else others)
        assert re.search(r"splits \[2, 1, 1\] do not" if rank == "1" else reason, words), words
        assert float(seconds) < 10
    assert "rank 1 of 3 failed first" in job.stderr
