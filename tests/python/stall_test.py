"""The report of a stall names, for every rank, the line of the user's script that it is at."""

import time
from pathlib import Path

import gyre.torch as hvd
import torch

PATIENCE_S = 60


def wait_for_report(words: str) -> None:
    """Rank 0's warnings go to its output, which the fixture keeps in this folder."""
    until = time.monotonic() + PATIENCE_S
    while not any(words in file.read_text() for file in Path.cwd().glob("body_*.0")):
        assert time.monotonic() < until, f"no report of {words}"
        time.sleep(0.05)


def late_to(words: str) -> None:
    wait_for_report(words)  # The line in which the last rank is when it is looked for.


def body_stalls() -> None:
    hvd.init()
    late = hvd.rank() == hvd.size() - 1
    if late:
        late_to("allreduce 'allreduce.named'")
    hvd.allreduce(torch.ones(1), name="named")  # Where the others wait.
    if late:
        late_to("barrier 'barrier.noname")
    hvd.barrier()
    weight = torch.nn.Parameter(torch.ones(3))
    for ends_in_backward in (True, False):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), end_in_backward=ends_in_backward)
        for step in (1, 2):
            optimizer.zero_grad()
            if late and step == 2:
                late_to(f"step 2 of gradient exchange 'optimizer.{1 if ends_in_backward else 2}'")
            weight.sum().backward()
            optimizer.step()


def test_a_stall_is_reported_with_the_lines_of_all_ranks(run_ranks):
    outcomes = run_ranks(3, body_stalls, environment={"GYRE_STALL_WARNING_SECONDS": "1"})
    reports = [line for line in outcomes[0].output.splitlines() if "stall: " in line]
    here = Path(__file__).name
    for words, waiting in (
        ("allreduce 'allreduce.named'", "hvd.allreduce(torch.ones(1), name="),
        ("barrier 'barrier.noname", "hvd.barrier()`"),
        ("step 2 of gradient exchange 'optimizer.1'", "weight.sum().backward()`"),
        ("step 2 of gradient exchange 'optimizer.2'", "optimizer.step()`"),
    ):
        report = next(line for line in reports if words in line)
        ready, missing = report.split("; missing: ")
        assert "on ranks 0, 1, at " in ready, report
        assert f"{here}:" in ready, report
        assert waiting in ready, report
        assert missing.startswith("rank 2 (host "), report
        assert f"{here}:" in missing, report
        assert "in wait_for_report(): `" in missing, report
    assert not any("stall: " in outcome.output for outcome in outcomes[1:])
