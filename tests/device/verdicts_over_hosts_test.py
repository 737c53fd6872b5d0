"""A rank on another host whose call does not match, or that does not call, must be named as soon as one on this host:
the ranks' lines and what they wait for travel over the links. Hosts are emulated, and so is the device."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hosts import FinishedRank, Hosts, run_ranks

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("ip", "ethtool")]
SUPPORT = Path(__file__).resolve().parents[1] / "support"
PATIENCE_S = 240
PROMISED_S = 5
LIMIT_S = 3

# Rank 2 is alone on the second host.
PROGRAM = """
import datetime, os, pathlib, sys, time
sys.path.insert(0, os.environ["SUPPORT"])
import gyre.distributed, sim_device, torch, torch.distributed as dist
from machine import Stopwatch
sim_device.follow("lazy")
sim_device.register_stand_in()
case, limit = sys.argv[1], datetime.timedelta(seconds=float(sys.argv[2]))
rank, folder = int(os.environ["GYRE_RANK"]), pathlib.Path(os.environ["FOLDER"])
address = os.environ["GYRE_RENDEZVOUS"].removeprefix("tcp:").rpartition(":")[0]
meeting = f"tcp://{address}:29700"
dist.init_process_group("gyre", init_method=meeting, rank=rank, world_size=3, timeout=limit)
device = torch.device("sim", rank % 2)
first = torch.ones(2, device=device)
dist.all_reduce(first)
first.cpu()  # The lazy device runs nothing before somebody waits.
dist.barrier()
if case == "missing" and rank == 2:
    while not all((folder / f"told.{other}").exists() for other in range(2)):
        time.sleep(0.05)  # The missing rank's line.
    sys.exit(0)
told = None
with Stopwatch() as watch:
    dist.all_reduce(torch.ones(4 if rank == 2 else 3, device=device))  # The call.
    while told is None:
        try:
            dist.all_reduce(torch.ones(1, device=device))
            time.sleep(0.05)
        except dist.DistBackendError as failure:
            told = f"{type(failure).__name__}: {failure}"
print(f"after {watch.seconds:.1f} s: {told}", flush=True)
(folder / f"told.{rank}").touch()
os._exit(0)
"""
LINE_OF_CALL, LINE_OF_MISSING = (
    next(number for number, line in enumerate(PROGRAM.splitlines(), start=1) if line.endswith(end))
    for end in ("# The call.", "# The missing rank's line.")
)


def told(folder: Path, case: str, limit: float) -> list[FinishedRank]:
    script = folder / "train.py"
    script.write_text(PROGRAM)
    environment = {
        "SUPPORT": str(SUPPORT),
        "PYTHONPATH": str(SUPPORT.parents[1] / "python"),
        "FOLDER": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    with Hosts.create(2, "1gbit") as hosts:
        command = [sys.executable, str(script), case, str(limit)]
        ranks = run_ranks(hosts, [2, 1], command, environment=environment, timeout_s=PATIENCE_S)
    assert [rank.returncode for rank in ranks] == [0, 0, 0], ranks
    return ranks


def seconds_of(rank: FinishedRank) -> float:
    return float(rank.stdout.split("after ", 1)[1].split(" s:", 1)[0])


def test_a_mismatch_with_a_rank_of_another_host_shows_both_calls_and_all_lines(tmp_path: Path) -> None:
    for rank in told(tmp_path, "mismatch", limit=600):
        assert seconds_of(rank) < PROMISED_S, rank
        assert "MismatchError" in rank.stdout, rank
        assert "allreduce of float32 [3]" in rank.stdout, rank
        assert "allreduce of float32 [4]" in rank.stdout, rank
        assert rank.stdout.count(f"train.py:{LINE_OF_CALL}") == 3, rank


def test_a_missing_rank_of_another_host_is_named_with_its_line(tmp_path: Path) -> None:
    for rank in told(tmp_path, "missing", limit=LIMIT_S)[:2]:
        assert seconds_of(rank) < LIMIT_S + PROMISED_S, rank
        assert "missing: rank 2 (host " in rank.stdout, rank
        assert f"train.py:{LINE_OF_MISSING}" in rank.stdout, rank
