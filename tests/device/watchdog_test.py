"""torch's watchdog of a device's library ends all ranks alike at its limit, and a launcher that shows the first SIGABRT
sends its user to the wrong rank: `gyre run` must name the cause, on one host and over two. With the stand-in's
watchdog, which writes torch's words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import sim_device
from hosts import Hosts

SUPPORT = Path(__file__).resolve().parents[1] / "support"
PATIENCE_S = 120
WATCHDOG_MS = 4000
ABORTED = 128 + signal.SIGABRT

PROGRAM = """
import datetime, os, sys, time
sys.path.insert(0, os.environ["SUPPORT"])
import gyre.distributed, sim_device, torch, torch.distributed as dist
sim_device.follow(next(iter(sim_device.SCHEDULES)))
sim_device.register_stand_in()
dist.init_process_group(os.environ["BACKEND"], timeout=datetime.timedelta(seconds=float(os.environ["LIMIT"])))
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
LINE_OF_ODD = PROGRAM.splitlines().index("    ODD") + 1
# In place of ssh: a command on another emulated host.
REACH = """#!/bin/sh
while [ $# -gt 1 ]; do shift; done
exec ip netns exec {namespace} sh -c "$1"
"""


def outcome_of(
    folder: Path,
    odd: str,
    *,
    backend: str,
    limit: float = 600 if sim_device.SIMULATED else WATCHDOG_MS / 1000,
    watchdog_ms: int | None = WATCHDOG_MS,
    launcher: Sequence[str] = ("gyre", "run", "-n", "3"),
) -> tuple[int, str]:
    """Exit code and output of a job in which rank 1 does something else than the others."""
    script = folder / "train.py"
    script.write_text(PROGRAM.replace("ODD", odd))
    environment = os.environ | {
        "SUPPORT": str(SUPPORT),
        "PYTHONPATH": str(SUPPORT.parents[1] / "python"),
        "BACKEND": backend,
        "LIMIT": str(limit),
        "OMP_NUM_THREADS": "1",
        "GYRE_STALL_WARNING_SECONDS": "1",
    }
    if watchdog_ms is not None:
        environment["STAND_IN_WATCHDOG_MS"] = str(watchdog_ms)
    job = subprocess.run(
        [*launcher, "--", sys.executable, script.name],
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


def outcome_over_hosts(folder: Path, odd: str, *, backend: str) -> tuple[int, str]:
    """The same, with rank 2 on a second host, and rank 1 as well."""
    with Hosts.create(2, "1gbit") as hosts:
        reach = folder / "reach"
        reach.write_text(REACH.format(namespace=hosts.namespace(1)))
        reach.chmod(0o700)
        command = ["gyre", "run", "--ssh", str(reach), "-H", f"localhost:1,{hosts.address(1)}:2"]
        return outcome_of(folder, odd, backend=backend, launcher=hosts.command_on(0, command))


def test_a_rank_that_a_program_of_torchs_own_misses_is_named_in_place_of_the_abort(tmp_path: Path) -> None:
    code, output = outcome_of(tmp_path, MISSING, backend=sim_device.LIBRARY)
    assert code == ABORTED, output
    verdict = verdict_in(output)
    assert verdict.startswith("gyre run: rank 1 of 3 did not make a call that ranks 0, 2 waited for; "), output
    assert "number 2 of its group, ALLREDUCE (NumelIn=4, NumelOut=4)" in output, output


def test_different_calls_of_a_program_of_torchs_own_are_shown(tmp_path: Path) -> None:
    code, output = outcome_of(tmp_path, DIFFERENT, backend=sim_device.LIBRARY)
    assert code == ABORTED, output
    assert verdict_in(output).startswith("gyre run: the ranks called different operations; "), output
    assert "ALLREDUCE (NumelIn=4, NumelOut=4) on ranks 0, 2" in output, output
    assert "BROADCAST (NumelIn=4, NumelOut=4) on rank 1" in output, output


@sim_device.needs_simulation
def test_a_watchdog_that_is_faster_than_gyres_limit_does_not_hide_the_missing_rank(tmp_path: Path) -> None:
    code, output = outcome_of(tmp_path, MISSING, backend="gyre")
    assert code == ABORTED, output
    assert verdict_in(output).startswith("gyre run: rank 1 of 3 did not make a call"), output
    [report] = [line for line in output.splitlines() if line.strip().startswith("Gyre's report")]
    assert "missing: rank 1" in report, output
    assert f"train.py:{LINE_OF_ODD}" in report, output


def test_gyres_own_limit_names_the_missing_rank_before_the_watchdog_acts(tmp_path: Path) -> None:
    code, output = outcome_of(tmp_path, MISSING, backend="gyre", limit=3, watchdog_ms=None)
    assert code == 1, output
    assert "SIGABRT" not in output, output
    block = output[output.index(verdict_in(output)) :]
    assert "missing: rank 1" in block, output
    assert f"train.py:{LINE_OF_ODD}" in block, output


def test_gyre_names_a_mismatch_before_the_watchdog_acts(tmp_path: Path) -> None:
    code, output = outcome_of(tmp_path, DIFFERENT, backend="gyre", limit=600)
    assert code == 1, output
    assert "SIGABRT" not in output, output
    block = output[output.index(verdict_in(output)) :]
    assert "MismatchError" in block, output
    assert f"rank 1: {tmp_path / 'train.py'}:{LINE_OF_ODD}" in block, output


# Each takes ten seconds.
BACKENDS = ["gyre", "standin"] if os.environ.get("GYRE_TEST_LONG") else ["standin"]


@pytest.mark.needs_root
@pytest.mark.needs_programs("ip", "ethtool")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_missing_rank_of_another_host_is_named_in_place_of_the_first_abort(tmp_path: Path, backend: str) -> None:
    code, output = outcome_over_hosts(tmp_path, MISSING, backend=backend)
    assert code == ABORTED, output
    assert verdict_in(output).startswith("gyre run: rank 1 of 3 did not make a call that ranks 0, 2 waited for; "), (
        output
    )
    assert "number 2 of its group, ALLREDUCE (NumelIn=4, NumelOut=4)" in output, output


if os.environ.get("GYRE_TEST_LONG"):

    @pytest.mark.needs_root
    @pytest.mark.needs_programs("ip", "ethtool")
    def test_different_calls_on_two_hosts_are_shown_in_place_of_the_first_abort(tmp_path: Path) -> None:
        code, output = outcome_over_hosts(tmp_path, DIFFERENT, backend=sim_device.LIBRARY)
        assert code == ABORTED, output
        assert verdict_in(output).startswith("gyre run: the ranks called different operations; "), output
        assert "ALLREDUCE (NumelIn=4, NumelOut=4) on ranks 0, 2" in output, output
        assert "BROADCAST (NumelIn=4, NumelOut=4) on rank 1" in output, output
