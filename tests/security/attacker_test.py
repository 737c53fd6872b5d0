"""Whoever holds the network between the ranks, but no key, can end a job and nothing more: it gives right sums, or ends
with one sentence on every rank within its limits. Never a wrong sum, a hang or a crash."""

from __future__ import annotations

import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import BinaryIO, Protocol

import gyre.torch as hvd
import pytest
import torch
import torch.distributed as dist
from effort import first_seed, rounds
from hostile_network import Attack, HostileNetwork, address, draw_attack
from rank_template import ForkedRank, RankTemplate

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("ip", "setpriv")]

ROOT = Path(__file__).resolve().parents[2]
HOSTS = 3
OPERATIONS = 12
MOST_CONNECTIONS = 9  # That a job makes, or one or two more.
LONGEST_SECONDS = 60.0
PLACES = (0, 0, 1, 2)  # The host of each rank: two share one.
LIMITS = {
    "GYRE_START_TIMEOUT_SECONDS": "5",
    "GYRE_COLLECTIVE_TIMEOUT_SECONDS": "4",
    "GYRE_STALL_FAILURE_SECONDS": "4",
}
RIGHT, TOLD = 0, 3


@dataclass(frozen=True)
class Outcome:
    rank: int
    code: int | None
    output: str
    seconds: float


@pytest.fixture(scope="module")
def network() -> Iterator[HostileNetwork]:
    with HostileNetwork(HOSTS) as network:
        yield network


def environments(folder: Path, encrypted: bool) -> list[dict[str, str]]:
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(32))
    return [
        {
            **os.environ,
            **LIMITS,
            "PYTHONPATH": str(ROOT / "python"),
            "GYRE_TLS": "1" if encrypted else "0",
            "GYRE_RANK": str(rank),
            "GYRE_SIZE": str(len(PLACES)),
            "GYRE_LOCAL_RANK": str(PLACES[:rank].count(place)),
            "GYRE_LOCAL_SIZE": str(PLACES.count(place)),
            "GYRE_RENDEZVOUS": f"tcp:{address(PLACES[0])}:29600",
            "GYRE_KEY_FILE": str(key),
        }
        for rank, place in enumerate(PLACES)
    ]


# In Python: what a rank runs


def add_up(operation: int, elements: int, rank: int) -> torch.Tensor:
    return (torch.arange(elements) * 7 + rank * 13 + operation) % 1009


def sums(operation: int, elements: int, size: int) -> torch.Tensor:
    return torch.stack([add_up(operation, elements, rank) for rank in range(size)]).sum(0)


def horovods_interface(sizes: Sequence[int]) -> bool:
    hvd.init()
    right = True
    for operation, elements in enumerate(sizes):
        mine = add_up(operation, elements, hvd.rank())
        expected = sums(operation, elements, hvd.size())
        summed = hvd.allreduce(mine.to(torch.float32), op=hvd.Sum, name=f"sum {operation}")
        right &= torch.equal(summed, expected.to(torch.float32))
        right &= torch.equal(hvd.broadcast(mine, 1, name=f"given {operation}"), add_up(operation, elements, 1))
    hvd.shutdown()
    return right


def torchs_interface(sizes: Sequence[int]) -> bool:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    where = f"tcp://{address(PLACES[0])}:29700"
    limit = timedelta(seconds=5)
    dist.init_process_group("gyre", init_method=where, rank=rank, world_size=size, timeout=limit)
    right = True
    for operation, elements in enumerate(sizes):
        summed = add_up(operation, elements, rank)
        dist.all_reduce(summed)
        right &= torch.equal(summed, sums(operation, elements, size))
        received = torch.empty(elements, dtype=torch.int64)
        sending = dist.isend(add_up(operation, elements, rank), (rank + 1) % size)
        dist.recv(received, (rank - 1) % size)
        if sending is not None:
            sending.wait()
        right &= torch.equal(received, add_up(operation, elements, (rank - 1) % size))
    dist.destroy_process_group()
    return right


def python_rank() -> None:
    generator = random.Random(os.environ["SEED"])
    sizes = [int(2 ** generator.uniform(0, 18)) for _ in range(OPERATIONS)]
    run = horovods_interface if generator.random() < 0.5 else torchs_interface
    try:
        right = run(sizes)
    except Exception as error:
        print("told:", error, flush=True)
        sys.exit(TOLD)
    print("right" if right else "WRONG", flush=True)


# And what watches them


class Starts(Protocol):
    """Starts a rank; `seed`: of what it computes."""

    def __call__(self, rank: int, seed: int, environment: dict[str, str], output: BinaryIO) -> Rank: ...


class Started:
    """A process, as the forked ranks of a template are seen."""

    def __init__(self, process: Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def ended_within(self, seconds: float) -> bool:
        with suppress(TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait()


Rank = Started | ForkedRank


def wait_for_all(ranks: Sequence[Rank], folder: Path) -> list[Outcome]:
    begin = time.monotonic()
    outcomes = []
    for number, rank in enumerate(ranks):
        ended = rank.ended_within(max(0.0, begin + LONGEST_SECONDS - time.monotonic()))
        text = (folder / f"{number}.txt").read_text(errors="replace")
        outcomes.append(Outcome(number, rank.wait() if ended else None, text, time.monotonic() - begin))
    return outcomes


def run_attacked(
    network: HostileNetwork,
    start: Starts,
    folder: Path,
    seed: int,
    encrypted: bool,
    chosen: Mapping[int, Attack],
) -> tuple[list[Outcome], list[str]]:
    """One job. `chosen`: what is done to its connections, which are numbered in the order in which they come."""
    folder.mkdir()
    ranks: list[Rank] = []
    processes: dict[int, int] = {}
    try:
        with network.attacked(chosen.get, processes, random.Random(seed)) as attacker:
            for number, environment in enumerate(environments(folder, encrypted)):
                with (folder / f"{number}.txt").open("wb") as output:
                    ranks.append(start(number, seed, environment, output))
                processes.setdefault(PLACES[number], ranks[-1].pid)
            outcomes = wait_for_all(ranks, folder)
        if attacker.failure is not None:
            raise attacker.failure
        return outcomes, attacker.attacks
    finally:
        for rank in ranks:
            if not rank.ended_within(0):
                rank.send_signal(signal.SIGKILL)
            rank.wait()


def check(outcomes: Sequence[Outcome], what: str) -> None:
    for outcome in outcomes:
        seen = f"{what}\nrank {outcome.rank} ended with {outcome.code}:\n{outcome.output}"
        assert outcome.code is not None, f"still there after {LONGEST_SECONDS} s: {seen}"
        assert "WRONG" not in outcome.output, seen
        assert outcome.code in (RIGHT, TOLD), seen
        assert "bug in Gyre" not in outcome.output, seen
        assert "Traceback" not in outcome.output, seen
        told = [line for line in outcome.output.splitlines() if line.startswith("told: ")]
        assert len(told) == (1 if outcome.code == TOLD else 0), seen
        assert ("right" in outcome.output.splitlines()) == (outcome.code == RIGHT), seen


def attack_again_and_again(
    network: HostileNetwork, start: Starts, folder: Path, seeds: Sequence[int], encrypted: bool
) -> None:
    for seed in seeds:
        generator = random.Random(seed)
        count = generator.choice((1, 1, 2, 3))
        chosen = {generator.randrange(MOST_CONNECTIONS): draw_attack(generator) for _ in range(count)}
        outcomes, attacks = run_attacked(network, start, folder / str(seed), seed, encrypted, chosen)
        what = f"GYRE_TEST_SEED={seed} {'encrypted' if encrypted else 'plain'}: {'; '.join(attacks) or 'no attack'}"
        codes = [outcome.code for outcome in outcomes]
        print(what, codes, f"{max(outcome.seconds for outcome in outcomes):.1f} s", flush=True)
        check(outcomes, what)


@pytest.fixture
def cpp(network: HostileNetwork, gyre: Path) -> Starts:
    program = str(gyre.parent.parent / "tests" / "security" / "gyre_sums_rank")

    def start(rank: int, seed: int, environment: dict[str, str], output: BinaryIO) -> Rank:
        command = [program, str(seed), str(OPERATIONS)]
        return Started(network.start(PLACES[rank], command, environment, output))

    return start


@pytest.fixture(scope="module")
def templates(network: HostileNetwork) -> Iterator[list[RankTemplate]]:
    """One on each host."""
    made = []
    for host in range(HOSTS):
        with network.on(host):
            made.append(RankTemplate({**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}))
    yield made
    for template in made:
        template.close()


@pytest.fixture
def python(templates: list[RankTemplate], tmp_path: Path) -> Starts:
    def start(rank: int, seed: int, environment: dict[str, str], output: BinaryIO) -> Rank:
        folder = tmp_path / f"{seed}-{rank}"
        folder.mkdir()
        call = (__file__, python_rank.__name__)
        return templates[PLACES[rank]].fork(call, {**environment, "SEED": str(seed)}, folder, output, {})

    return start


def seeds(everyday: int, long: int) -> list[int]:
    return list(range(first_seed(), first_seed() + rounds(everyday, long)))


@pytest.mark.parametrize("encrypted", [True, False])
def test_without_an_attack_the_sums_are_right(
    network: HostileNetwork, cpp: Starts, tmp_path: Path, encrypted: bool
) -> None:
    outcomes, _ = run_attacked(network, cpp, tmp_path / "ranks", 1, encrypted, {})
    assert [outcome.code for outcome in outcomes] == [RIGHT] * len(PLACES), outcomes


@pytest.mark.parametrize("encrypted", [True, False])
def test_programs_in_cpp(network: HostileNetwork, cpp: Starts, tmp_path: Path, encrypted: bool) -> None:
    attack_again_and_again(network, cpp, tmp_path, seeds(4, 200), encrypted)


@pytest.mark.parametrize("encrypted", [True, False])
def test_programs_in_python(network: HostileNetwork, python: Starts, tmp_path: Path, encrypted: bool) -> None:
    attack_again_and_again(network, python, tmp_path, seeds(1, 30), encrypted)
