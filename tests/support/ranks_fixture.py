"""Runs a function as several ranks: real processes that meet through the environment a launcher would give them.

The folder of tests that uses `run_ranks` has a session's fixture `templates`, made by two_templates()."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from checks import CHOSEN, Check, RunChecks, problem_of
from job_environment import job_environment
from rank_template import RANK_MAIN, ForkedRank, Outcome, Rank, RankTemplate, outcomes_of

# Of a test file: by item, but for the check, what its job was to run and how its ranks ended.
JOBS = pytest.StashKey[dict[tuple[object, ...], tuple[list[str], list[Outcome]]]]()
PACKAGE = Path(__file__).parents[2] / "python"


class RunRanks(Protocol):
    def __call__(
        self,
        size: int,
        body: Callable[[], None],
        *,
        timeout_s: float = 120,
        check: bool = True,
        launcher: bool = True,
        environment: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> list[Outcome]:
        """Calls `body`, a function of a test file, in `size` processes. `check`: all must succeed. `launcher`: they are
        told of each other. `fresh`: each starts as `python` does, and not as a fork that has the framework already."""


class FreshRank(subprocess.Popen[bytes]):
    """A process that starts with nothing imported."""

    def ended_within(self, seconds: float) -> bool:
        try:
            self.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def two_templates(*imports: str) -> Iterator[list[RankTemplate]]:
    """So that neighbouring ranks have sets of different order; ended when the caller goes on."""
    environment = {**inherited_environment(), "OMP_NUM_THREADS": "1"}
    started = [RankTemplate(environment, imports=imports) for _ in range(2)]
    yield started
    for template in started:
        template.close()


def inherited_environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
    environment = kept | {key: value for key, value in os.environ.items() if key.startswith("GYRE_TEST_")}
    return {**environment, "PYTHONPATH": str(PACKAGE)}


@pytest.fixture
def run_ranks(tmp_path: Path, request: pytest.FixtureRequest, evidence: list[Path]) -> RunRanks:
    def start_fresh(call: list[str], variables: dict[str, str], descriptors: dict[str, int], output: Path) -> FreshRank:
        with output.open("wb") as stream:
            return FreshRank(
                [sys.executable, "-X", "faulthandler", str(RANK_MAIN), *call],
                env={**variables, **{name: str(descriptor) for name, descriptor in descriptors.items()}},
                pass_fds=list(descriptors.values()),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=tmp_path,
            )

    def fork(
        rank: int, call: list[str], variables: dict[str, str], descriptors: dict[str, int], output: Path
    ) -> ForkedRank:
        templates: list[RankTemplate] = request.getfixturevalue("templates")
        with output.open("wb") as stream:
            template = templates[rank % len(templates)]
            return template.fork(call, variables, tmp_path, stream, descriptors)

    def run(
        size: int,
        body: Callable[[], None],
        *,
        timeout_s: float = 120,
        check: bool = True,
        launcher: bool = True,
        environment: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> list[Outcome]:
        call = [inspect.getfile(body), body.__name__]
        outputs = [tmp_path / f"{body.__name__}.{size}.{rank}" for rank in range(size)]
        evidence.extend(outputs)
        ranks: list[Rank] = []
        with job_environment(size) as (variables, descriptors):
            for rank, output in enumerate(outputs):
                given = {**inherited_environment(), **(variables[rank] if launcher else {}), **(environment or {})}
                inherited = descriptors[rank] if launcher else {}
                if fresh or not launcher:
                    ranks.append(start_fresh(call, given, inherited, output))
                else:
                    ranks.append(fork(rank, call, given, inherited, output))
        outcomes = outcomes_of(ranks, outputs, timeout_s)
        if check and any(outcome.code != 0 for outcome in outcomes):
            pytest.fail("\n".join(f"--- rank {r}: exit code {o.code}\n{o.output}" for r, o in enumerate(outcomes)))
        return outcomes

    return run


def _job_of(item: pytest.Item) -> tuple[object, ...]:
    """Equal for the items that share a job: those of one function that differ in their check alone."""
    assert isinstance(item, pytest.Function)
    others = {name: value for name, value in item.callspec.params.items() if name != "check"}
    return item.getparent(pytest.Module), item.originalname, *sorted(others.items())


@pytest.fixture
def run_checks(run_ranks: RunRanks, request: pytest.FixtureRequest) -> RunChecks:
    """See checks.py."""

    def run(
        size: int,
        body: Callable[[], None],
        check: Check,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 120,
    ) -> None:
        item = request.node
        jobs = item.getparent(pytest.Module).stash.setdefault(JOBS, {})
        job = _job_of(item)
        if job not in jobs:
            alike = (
                one for one in request.session.items if one.nodeid.partition("[")[0] == item.nodeid.partition("[")[0]
            )
            chosen = [one.callspec.params["check"].__name__ for one in alike if _job_of(one) == job]
            variables = {**(environment or {}), CHOSEN: ",".join(chosen)}
            jobs[job] = chosen, run_ranks(size, body, check=False, environment=variables, timeout_s=timeout_s)
        problem = problem_of(check.__name__, *jobs[job])
        if problem:
            pytest.fail(problem, pytrace=False)

    return run
