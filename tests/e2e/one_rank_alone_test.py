"""A collective inside `if rank == 0:` is the most frequent mistake in a distributed script. Whichever way it ends, what
`gyre run` shows must name it: the lines of both sides, and all of the advice, in the closing block."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from running_job import StartJob

PACKAGE = Path(__file__).resolve().parent.parent.parent / "python"
# After the third step; the others go on to the next one.
DDP = """
import gyre.distributed, torch, torch.distributed as dist
dist.init_process_group("gyre")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 1))
for step in range(5):
    model(torch.ones(4, 10)).sum().backward()
    if step == 2 and dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))
"""
HOROVOD = """
import gyre.torch as hvd, torch
hvd.init()
model = torch.nn.Linear(10, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
for step in range(5):
    optimizer.zero_grad()
    model(torch.ones(4, 10)).sum().backward()
    optimizer.step()
    if step == 2 and hvd.rank() == 0:
        hvd.allreduce(torch.ones(1), name="accuracy")
"""
# Names and places that only we know.
INTERNALS = re.compile(r"\blane\b|\bplan\b|_wait_one|_finish_step|_wait_for_engine|GradientExchange")


@pytest.fixture
def error_in_block(start_job: StartJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs a script on two ranks; the error that the closing block shows."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # As it is for users.
    script = tmp_path / "train.py"

    def run(text: str) -> str:
        script.write_text(text)
        environment = {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "GYRE_DEADLOCK_SECONDS": "1"}
        job = start_job("-n", "2", "--", sys.executable, str(script), env=environment, timeout=120)
        assert job.wait() == 1, job.stderr
        found = re.search(r"^  error +(.*)", job.stderr.partition("gyre run: rank ")[2], re.MULTILINE)
        assert found is not None, job.stderr
        return found[1]

    return run


def test_a_ddp_bucket_that_meets_another_collective_shows_both_lines_and_the_usual_cause(error_in_block) -> None:
    error = error_in_block(DDP)
    assert "allreduce of float32 [1] on rank 0; allreduce of float32 [11] on rank 1; " in error
    assert re.search(r"; rank 0 is at \S+train\.py:8 in <module>: `dist\.all_reduce\(torch\.ones\(1\)\)`; ", error), (
        error
    )
    assert re.search(r"; rank 1 is at \S+train\.py:6 in <module>: `model\(.*\)\.sum\(\)\.backward\(\)`", error), error
    assert "Probably a collective is called on some ranks only (inside `if rank == 0:`, say)" in error
    assert INTERNALS.search(error) is None, error


def test_a_deadlock_is_shown_up_to_its_last_word_and_in_plain_ones(error_in_block) -> None:
    error = error_in_block(HOROVOD)
    assert error.startswith(
        "gyre.errors.MismatchError: deadlock: rank 0 waits for allreduce 'allreduce.accuracy', which "
    )
    assert (
        '`hvd.allreduce(torch.ones(1), name="accuracy")`; rank 1 waits for the end of step 4 of gradient exchange'
        in error
    )
    assert "call it on all ranks or on none; fewer batches on some ranks: " in error
    assert error.endswith("call such operations between backward() and step()"), error
    assert INTERNALS.search(error) is None, error
