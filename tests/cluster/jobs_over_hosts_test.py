"""Over real links between hosts a job must compute what it computes on one, send no more than it must, and end as one
when a rank on another host dies.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hosts import FinishedRank, Hosts, run_ranks

HERE = Path(__file__).parent
PACKAGE = HERE.parent.parent / "python"


def run(hosts: Hosts, function: str, ranks_per_host: list[int], tls: str = "0") -> list[FinishedRank]:
    command = [sys.executable, str(HERE / "host_rank.py"), function]
    environment = {"PYTHONPATH": str(PACKAGE), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "GYRE_TLS": tls}
    return run_ranks(hosts, ranks_per_host, command, environment=environment, timeout_s=240)


@pytest.mark.parametrize(("ranks_per_host", "tls"), [([2, 2], "0"), ([1, 1, 1], "0"), ([1, 3], "0"), ([2, 1], "1")])
def test_sums_are_right_equal_everywhere_and_no_more_is_sent_than_must_be(ranks_per_host: list[int], tls: str) -> None:
    count = len(ranks_per_host)
    with Hosts.create(count, "1gbit") as hosts:
        finished = run(hosts, "reduce_and_report", ranks_per_host, tls)
    assert all(rank.returncode == 0 for rank in finished), finished
    reports = [re.findall(r"digest=(-?\d+) sent=(\d+)", rank.stdout)[0] for rank in finished]
    assert len({digest for digest, _ in reports}) == 1, reports
    # 2(H-1)/H of 16 MB; on top packets' headers, acknowledgements, and what ranks agree on.
    payload = 2 * (count - 1) / count * (16 << 20)
    for _, sent in reports:
        assert payload <= int(sent) <= 1.05 * payload, reports


def test_training_gives_all_ranks_the_same_weights() -> None:
    with Hosts.create(2, "1gbit") as hosts:
        finished = run(hosts, "train", [2, 1])
    assert all(rank.returncode == 0 for rank in finished), finished
    assert len({rank.stdout for rank in finished}) == 1, finished


def test_a_rank_that_dies_on_another_host_fails_all_with_one_reason() -> None:
    with Hosts.create(2, "1gbit") as hosts:
        finished = run(hosts, "lose_a_rank", [2, 2])
    assert [rank.returncode for rank in finished] == [3, 3, 3, -9], finished
    told = {line for rank in finished[:3] for line in rank.stdout.splitlines() if line.startswith("told")}
    assert len(told) == 1, told
    assert "rank 3" in told.pop()
