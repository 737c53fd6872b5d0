"""torch's watchdog of a device's library ends all ranks alike at its limit, and a launcher that shows the first SIGABRT
sends its user to the wrong rank: `gyre run` must name the cause. With the stand-in's watchdog, which writes torch's
words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[1] / "support"
PATIENCE_S = 120
WATCHDOG_MS = 4000
ABORTED = 128 + signal.SIGABRT

PROGRAM = """
import datetime, os, sys, time
sys.path.insert(0, os.environ["SUPPORT"])
import sim_device, torch, torch.distributed as dist
sim_device.join_group(3, datetime.timedelta(seconds=float(os.environ["LIMIT"])))
tensor = torch.ones(4, device=sim_device.own_device())
dist.all_reduce(tensor)
tensor.cpu()
if dist.get_rank() == 1:
    ODD
dist.all_reduce(tensor)
tensor.cpu()  # The device waits for rank 1.
dist.all_reduce(tensor)
"""
MISSING = "time.sleep(600)"
DIFFERENT = "dist.broadcast(tensor, 0); tensor.cpu()"


def outcome_of(
    folder: Path, odd: str, *, backend: str, limit: float = 600, watchdog_ms: int | None = WATCHDOG_MS
) -> tuple[int, str]:
    """Exit code and output of a job in which rank 1 does something else than the others."""
    script = folder / "train.py"
    script.write_text(PROGRAM.replace("ODD", odd))
    environment = os.environ | {
        "SUPPORT": str(SUPPORT),
        "PYTHONPATH": str(SUPPORT.parents[1] / "python"),
        "SCHEDULE": "lazy",
        "BACKEND": backend,
        "LIMIT": str(limit),
        "OMP_NUM_THREADS": "1",
        "GYRE_STALL_WARNING_SECONDS": "1",
    }
    if watchdog_ms is not None:
        environment["STAND_IN_WATCHDOG_MS"] = str(watchdog_ms)
    job = subprocess.run(
        ["gyre", "run", "-n", "3", "--", sys.executable, script.name],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return job.returncode, job.stdout


def verdict_in(output: str) -> str:
    """The block's first line; there is one."""
    [verdict] = [line for line in output.splitlines() if line.startswith("gyre run: ")]
    return verdict


def test_a_rank_that_a_program_of_torchs_own_misses_is_named_in_place_of_the_abort(tmp_path: Path) -> None:
    code, output = outcome_of(tmp_path, MISSING, backend="standin")
    assert code == ABORTED, output
    verdict = verdict_in(output)
    assert verdict.startswith("gyre run: rank 1 of 3 did not make a call that ranks 0, 2 waited for; "), output
    assert "number 2 of its group, ALLREDUCE (NumelIn=4, NumelOut=4)" in output, output


def test_different_calls_of_a_program_of_torchs_own_are_shown(tmp_path: Path) -> None:
    code, output = outcome_of(tmp_path, DIFFERENT, backend="standin")
    assert code == ABORTED, output
    assert verdict_in(output).startswith("gyre run: the ranks called different operations; "), output
    assert "ALLREDUCE (NumelIn=4, NumelOut=4) on ranks 0, 2" in output, output
    assert "BROADCAST (NumelIn=4, NumelOut=4) on rank 1" in output, output


def test_a_watchdog_that_is_faster_than_gyres_limit_does_not_hide_the_missing_rank(tmp_path: Path) -> None:
    code, output = outcome_of(tmp_path, MISSING, backend="gyre")
    assert code == ABORTED, output
    assert verdict_in(output).startswith("gyre run: rank 1 of 3 did not make a call"), output
    [report] = [line for line in output.splitlines() if line.strip().startswith("Gyre's report")]
    assert "missing: rank 1" in report, output
    assert "train.py:10" in report, output


def test_gyres_own_limit_names_the_missing_rank_before_the_watchdog_acts(tmp_path: Path) -> None:
    code, output = outcome_of(tmp_path, MISSING, backend="gyre", limit=3, watchdog_ms=None)
    assert code == 1, output
    assert "SIGABRT" not in output, output
    block = output[output.index(verdict_in(output)) :]
    assert "missing: rank 1" in block, output
    assert "train.py:10" in block, output


def test_gyre_names_a_mismatch_before_the_watchdog_acts(tmp_path: Path) -> None:
    code, output = outcome_of(tmp_path, DIFFERENT, backend="gyre")
    assert code == 1, output
    assert "SIGABRT" not in output, output
    block = output[output.index(verdict_in(output)) :]
    assert "MismatchError" in block, output
    assert f"rank 1: {tmp_path / 'train.py'}:10" in block, output
