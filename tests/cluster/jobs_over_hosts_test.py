"""Over real links between hosts a job must compute what it computes on one, send no more than it must, and end as one
when a rank on another host dies.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from effort import rounds, seeded_random
from hosts import Hosts, rank_environments
from rank_template import Outcome, RankTemplate, outcomes_of
from running_job import wait_until

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("ip", "ethtool")]
HERE = Path(__file__).parent
PACKAGE = HERE.parent.parent / "python"
RunJob = Callable[..., list[Outcome]]


@pytest.fixture(scope="module")
def templates() -> Iterator[tuple[Hosts, list[RankTemplate]]]:
    """Four hosts of two links each, and on each a process that has torch and makes the ranks. One hash seed: the ranks
    print hashes."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    with Hosts.create(4, "1gbit", links=2) as hosts:
        started = [
            RankTemplate(environment, lambda command, host=host: hosts.command_on(host, command))
            for host in range(hosts.count)
        ]
        yield hosts, started
        for template in started:
            template.close()


@pytest.fixture
def run(templates: tuple[Hosts, list[RankTemplate]], tmp_path: Path, evidence: list[Path]) -> RunJob:
    hosts, started = templates

    def run(
        function: str, ranks_per_host: list[int], host_of_rank: list[int] | None = None, **variables: str
    ) -> list[Outcome]:
        if host_of_rank is None:
            host_of_rank = [host for host, count in enumerate(ranks_per_host) for _ in range(count)]
        key_file = tmp_path / "key"
        key_file.touch(mode=0o600)
        key_file.write_bytes(secrets.token_bytes(32))
        inherited = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
        ranks, outputs = [], []
        for rank, place in enumerate(rank_environments(hosts, host_of_rank, key_file)):
            outputs.append(tmp_path / f"rank-{rank}")
            with outputs[rank].open("wb") as output:
                call = [str(HERE / "host_rank.py"), function]
                template = started[host_of_rank[rank]]
                ranks.append(template.fork(call, {**inherited, **place}, tmp_path, output, {}))
        evidence.extend(outputs)
        return outcomes_of(ranks, outputs, timeout_s=240)

    return run


@pytest.mark.parametrize(("ranks_per_host", "tls"), [([2, 2], "0"), ([1, 1, 1], "0"), ([1, 3], "0"), ([2, 1], "1")])
def test_sums_are_right_equal_everywhere_and_no_more_is_sent_than_must_be(
    run: RunJob, ranks_per_host: list[int], tls: str
) -> None:
    count = len(ranks_per_host)
    finished = run("reduce_and_report", ranks_per_host, GYRE_TLS=tls)
    assert all(rank.code == 0 for rank in finished), finished
    reports = [re.findall(r"digest=(-?\d+) sent=(\d+)", rank.output)[0] for rank in finished]
    assert len({digest for digest, _ in reports}) == 1, reports
    # 2(H-1)/H of 16 MB; on top packets' headers, acknowledgements, and what ranks agree on.
    payload = 2 * (count - 1) / count * (16 << 20)
    for _, sent in reports:
        assert payload <= int(sent) <= 1.05 * payload, reports


@pytest.mark.parametrize("host_of_rank", [[0, 0, 1], [0, 1, 1], [0, 1, 0], [0, 1, 2, 0, 1], [0, 0, 1, 1]])
def test_sums_are_in_the_promised_order_wherever_the_ranks_lie(run: RunJob, host_of_rank: list[int]) -> None:
    finished = run("sum_in_order", [], host_of_rank, LAYOUT=" ".join(map(str, host_of_rank)))
    assert all(rank.code == 0 for rank in finished), finished


def test_threads_optimizers_forks_and_second_starts_change_no_bit_on_any_hosts(run: RunJob) -> None:
    chooser = seeded_random()
    for _ in range(rounds(3, 30)):
        hosts = chooser.randint(1, 4)
        host_of_rank = [chooser.randrange(hosts) for _ in range(chooser.randint(2, 5))]
        # Rank 0 meets the others at the address of its host, the first one.
        host_of_rank[0] = 0
        variables = {"SEED": str(chooser.randrange(1 << 30)), "GYRE_TLS": chooser.choice("01")}
        print(host_of_rank, variables)
        finished = run("random_life", [], host_of_rank, **variables)
        assert all(rank.code == 0 and "right" in rank.output for rank in finished), (host_of_rank, variables, finished)


def test_ranks_of_a_host_spread_their_links_over_its_interfaces(
    run: RunJob, templates: tuple[Hosts, list[RankTemplate]]
) -> None:
    hosts, _ = templates
    before = [hosts.bytes_sent(0, link) for link in (0, 1)]
    finished = run("reduce_and_report", [2, 2], GYRE_INTERFACES="eth0,eth1")
    sent = [hosts.bytes_sent(0, link) - before[link] for link in (0, 1)]
    assert all(rank.code == 0 for rank in finished), finished
    assert len({re.findall(r"digest=(-?\d+)", rank.output)[0] for rank in finished}) == 1, finished
    # 16 MB leave the host, half of them from each rank, after some 5 MB of smaller tensors.
    assert all((8 << 20) <= count <= (14 << 20) for count in sent), sent


def test_an_interface_that_is_not_there_is_named_on_every_rank(run: RunJob) -> None:
    finished = run("train", [1, 1], GYRE_INTERFACES="eth0,eth7")
    for host, rank in enumerate(finished):
        assert rank.code != 0
        assert "GYRE_INTERFACES names 'eth7', but no such network interface is up" in rank.output
        assert f"there are: eth0 (10.77.0.{host + 1}), eth1 (10.77.1.{host + 1}), lo (127.0.0.1)" in rank.output


def test_training_gives_all_ranks_the_same_weights(run: RunJob) -> None:
    # Each host listens at its own address in the network, and accepts the others of it.
    finished = run("train", [2, 1], GYRE_BIND="10.77.0.0/24", GYRE_ALLOW="10.77.0.0/24")
    assert all(rank.code == 0 for rank in finished), finished
    assert len({re.findall(r"digest=(-?\d+)", rank.output)[0] for rank in finished}) == 1, finished


LINK_SETTINGS = {"GYRE_TLS": "0", "GYRE_INTERFACES": "eth0,eth1"}


@pytest.mark.parametrize(("ranks_per_host", "settings"), [([1, 1], {}), ([2, 2], {}), ([2, 2], LINK_SETTINGS)])
def test_ddp_over_hosts_ends_with_gloos_weights(
    run: RunJob, templates: tuple[Hosts, list[RankTemplate]], ranks_per_host: list[int], settings: dict[str, str]
) -> None:
    before = templates[0].bytes_sent(0, 1)
    finished = run("train_ddp", ranks_per_host, **settings)
    assert all(rank.code == 0 for rank in finished), finished
    reports = [re.findall(r"digest=(-?\d+) far=(\S+)", rank.output)[0] for rank in finished]
    assert len({digest for digest, _ in reports}) == 1, reports
    # Of two ranks both sum a + b; of more, gloo sums in another order.
    bound = 0.0 if sum(ranks_per_host) == 2 else 1e-6
    assert all(float(far) <= bound for _, far in reports), reports
    # Half of four times 0.5 MB; gloo knows of the first interface alone.
    assert (templates[0].bytes_sent(0, 1) - before > 800_000) == bool(settings)


def test_torchs_groups_take_the_setting_for_encryption(run: RunJob) -> None:
    finished = run("disagree_about_encryption", [1, 1])
    assert [rank.code for rank in finished] == [3, 3], finished
    assert all("set GYRE_TLS alike for all ranks" in rank.output for rank in finished), finished


def test_a_rank_that_dies_on_another_host_fails_all_with_one_reason(run: RunJob) -> None:
    finished = run("lose_a_rank", [2, 2])
    assert [rank.code for rank in finished] == [3, 3, 3, -9], finished
    told = {line for rank in finished[:3] for line in rank.output.splitlines() if line.startswith("told")}
    assert len(told) == 1, told
    assert "rank 3" in told.pop()


def test_a_rank_that_dies_on_another_host_is_missed_although_its_fork_lives(run: RunJob, tmp_path: Path) -> None:
    finished = run("lose_a_rank_whose_fork_lives", [1, 1], FOLDER=str(tmp_path))
    assert [rank.code for rank in finished] == [3, -9], finished
    wait_until("the fork has seen it", (tmp_path / "fork").exists)
    assert (tmp_path / "fork").read_text() == "known"
