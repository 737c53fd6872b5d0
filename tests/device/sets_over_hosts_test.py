"""A process set whose first rank is not the job's: the library's ranks meet at that rank's host, and not at rank 0's.
On two emulated hosts, with a stand-in for NCCL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hosts import Hosts, run_ranks

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("ip", "ethtool")]

SUPPORT = Path(__file__).resolve().parents[1] / "support"
PATIENCE_S = 120

PROGRAM = """
import os, sys
sys.path.insert(0, os.environ["SUPPORT"])
import sim_device, torch
import gyre.torch as hvd
sim_device.begin()
hvd.init()
pair = hvd.add_process_set([1, 2])
device = torch.device("sim", hvd.rank() % 2)
if hvd.rank():
    print("sum", hvd.allreduce(torch.ones(3, device=device) * hvd.rank(), op=hvd.Sum, process_set=pair).tolist())
    print("calls", sim_device.load().stand_in_calls())
hvd.barrier()
hvd.shutdown()
"""


def test_a_process_set_over_two_hosts_without_rank_0_meets(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    environment = {
        "SUPPORT": str(SUPPORT),
        "PYTHONPATH": str(SUPPORT.parents[1] / "python"),
        "SCHEDULE": "lazy",
        "CARRIER": "delegated",
        "OMP_NUM_THREADS": "1",
    }
    with Hosts.create(2, "1gbit") as hosts:
        command = [sys.executable, str(script)]
        ranks = run_ranks(hosts, [2, 1], command, host_of_rank=[0, 1, 0], environment=environment, timeout_s=PATIENCE_S)
    assert [rank.returncode for rank in ranks] == [0, 0, 0], ranks
    for rank in ranks[1:]:
        assert "sum [3.0, 3.0, 3.0]" in rank.stdout, rank
        assert "calls ['allreduce']" in rank.stdout, rank
