"""Containers of one pod share a network and nothing else: a process number, a descriptor or a path of one rank means
something else to another, or nothing. Gradients must have the same bits as without containers.

Every rank gets namespaces of its own, in every combination, with equal and different descriptor numbers, /proc shown,
of another namespace or hidden, /dev/shm as outside or of 64 KB, and without system calls that containers refuse. An
everyday run draws some of them; GYRE_TEST_LONG=1 tries all.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from container import Container
from effort import rounds, seeded_random
from hosts import Hosts
from rank_template import Outcome, RankTemplate, outcomes_of

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("ip", "ethtool")]

RANK = Path(__file__).with_name("pod_rank.py")
PACKAGE = Path(__file__).resolve().parents[2] / "python"
RANKS = 2
LONGEST_SECONDS = 120.0
DRAWN = 8  # A few seconds each on a busy machine.
# The file that a rank has open under many numbers.
DATA_BYTES = 4 << 20
LITTLE = "64k"


@dataclass(frozen=True)
class Case:
    container: Container
    descriptors: str = "equal"

    def may_share_buckets(self) -> bool:
        """Whether the ranks have all that it takes: one host, known as such, and memory for the buckets."""
        container = self.container
        return "net" not in container.namespaces and container.proc != "hidden" and container.shared_memory == "around"


def all_cases() -> list[Case]:
    cases = []
    for count in range(5):
        for namespaces in itertools.combinations(("pid", "mount", "user", "net"), count):
            proc, memory = ["around"], ["around"]
            if "mount" in namespaces:
                proc += ["hidden", "own"] if "pid" in namespaces else ["hidden"]
                memory.append(LITTLE)
            for shown, size, denied, descriptors in itertools.product(
                proc, memory, [(), ("process_vm_readv",), ("pidfd_getfd", "pidfd_open")], ["equal", "different"]
            ):
                cases.append(Case(Container(namespaces, shown, size, denied), descriptors))
    return cases


def chosen_cases() -> list[Case]:
    """All, or some: always those whose ranks have the same number and the same descriptors, as every pod's have."""
    pod = Container(("pid", "mount"), proc="own")
    always = [Case(pod), Case(pod, "different")]
    others = [case for case in all_cases() if case not in always]
    return always + seeded_random().sample(others, rounds(DRAWN, len(others)))


@dataclass
class Pods:
    """Starts two ranks, each in a container."""

    hosts: Hosts
    templates: list[RankTemplate]
    folder: Path
    evidence: list[Path] = field(default_factory=list)
    jobs: int = 0

    def run(self, containers: Sequence[Container], descriptors: str = "equal") -> list[Outcome]:
        self.jobs += 1
        folder = self.folder / str(self.jobs)
        folder.mkdir()
        (folder / "data").write_bytes(bytes(DATA_BYTES))
        (folder / "key").touch(mode=0o600)
        (folder / "key").write_bytes(secrets.token_bytes(32))
        outputs = [folder / f"rank{rank}" for rank in range(RANKS)]
        self.evidence.extend(outputs)
        ranks = []
        for rank, (container, output) in enumerate(zip(containers, outputs, strict=True)):
            environment = {
                **{name: value for name, value in os.environ.items() if not name.startswith("GYRE_")},
                "PYTHONPATH": str(PACKAGE),
                "OMP_NUM_THREADS": "1",
                "GYRE_KEY_FILE": str(folder / "key"),
                "MASTER_ADDR": self.hosts.address(0),
                "MASTER_PORT": str(20_000 + self.jobs),
                "RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                "TEST_NETWORK": self.hosts.namespace(rank if "net" in container.namespaces else 0),
                "TEST_CONTAINER": container.text(),
                "TEST_DESCRIPTORS": descriptors,
                "GYRE_FUSION_BYTES": "0",  # Buckets that are ready at once would be fused, and not reduced in place.
            }
            with output.open("wb") as stream:
                call = [str(RANK), "train"]
                ranks.append(self.templates[rank].fork(call, environment, folder, stream, {}))
        outcomes = outcomes_of(ranks, outputs, LONGEST_SECONDS)
        assert (folder / "data").read_bytes() == bytes(DATA_BYTES), "a rank wrote to a file that it only had open"
        return outcomes


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"}
    templates = [RankTemplate(environment) for _ in range(RANKS)]
    with Hosts.create(2, "1gbit") as hosts:
        yield Pods(hosts, templates, tmp_path_factory.mktemp("pods"))
    for template in templates:
        template.close()


def results_of(outcomes: Sequence[Outcome]) -> list[tuple[str, int]]:
    for rank, outcome in enumerate(outcomes):
        assert outcome.code == 0, f"rank {rank} ended with {outcome.code}:\n{outcome.output}"
    reports = [json.loads(outcome.output.splitlines()[-1]) for outcome in outcomes]
    return [(report["digest"], report["in_place"]) for report in reports]


def test_gradients_have_the_same_bits_in_every_container(pods: Pods, evidence: list[Path]) -> None:
    pods.evidence = evidence
    expected = results_of(pods.run([Container()] * RANKS))
    assert expected[0] == expected[1]
    assert expected[0][1] > 0, "outside of containers, buckets are reduced in place"
    for case in chosen_cases():
        print(case, file=sys.stderr)
        results = results_of(pods.run([case.container] * RANKS, case.descriptors))
        for digest, in_place in results:
            assert digest == expected[0][0], f"{case}: other gradients"
            assert in_place == (expected[0][1] if case.may_share_buckets() else 0), case


def test_a_rank_in_a_container_and_one_outside_get_the_same_bits(pods: Pods, evidence: list[Path]) -> None:
    pods.evidence = evidence
    expected = results_of(pods.run([Container()] * RANKS))
    inside = seeded_random().choice([case for case in all_cases() if "net" not in case.container.namespaces])
    print(inside, file=sys.stderr)
    results = results_of(pods.run([inside.container, Container()], inside.descriptors))
    assert [digest for digest, _ in results] == [expected[0][0]] * RANKS, inside


def test_a_rank_that_cannot_have_shared_memory_says_so(pods: Pods, evidence: list[Path]) -> None:
    pods.evidence = evidence
    outcomes = pods.run([Container(denied=("memfd_create",)), Container()])
    assert [outcome.code for outcome in outcomes] == [1, 1]
    assert "memfd_create" in outcomes[0].output
    assert "rank 0 (host " in outcomes[1].output
