"""Many checks in one job of ranks, each a test item of its own: starting a job costs more than most checks.

    CHECKS = [sums, averages]

    def body_checks() -> None:
        hvd.init()
        run_each(CHECKS)

    @pytest.mark.parametrize("size", [2, 3])
    @each(CHECKS)
    def test_operations(run_checks, size, check):
        run_checks(size, body_checks, check)

The first item of a size starts the job, which runs the checks of all items that were chosen, in their order; the others
read what the ranks have said. A check that fails ends the job: those after it were not reached, and say so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pytest
from rank_template import Outcome

CHOSEN = "GYRE_TEST_CHECKS"
BEGINS = "check begins: "
PASSED = "check passed: "

Check = Callable[[], None]


class RunChecks(Protocol):
    def __call__(
        self,
        size: int,
        body: Callable[[], None],
        check: Check,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 120,
    ) -> None:
        """Fails where `check` did in the job of `size` ranks that call `body`, which calls run_each()."""


def each(checks: Sequence[Check]) -> pytest.MarkDecorator:
    """An item for each check, with its name."""
    return pytest.mark.parametrize("check", checks, ids=lambda check: check.__name__)


def run_each(checks: Sequence[Check]) -> None:
    """On a rank: runs those of the checks that were chosen, and says of each that it begins and that it has passed."""
    chosen = os.environ[CHOSEN].split(",")
    for check in checks:
        if check.__name__ in chosen:
            print(f"\n{BEGINS}{check.__name__}", flush=True)
            check()
            print(f"\n{PASSED}{check.__name__}", flush=True)


def problem_of(check: str, chosen: Sequence[str], outcomes: Sequence[Outcome]) -> str:
    """Why a check of a job has not passed; empty where it has. `chosen`: all that the job was to run, in order."""
    passed = [set(outcome.output.splitlines()) for outcome in outcomes]
    unfinished = [name for name in chosen if not all(f"{PASSED}{name}" in lines for lines in passed)]
    if not unfinished:
        if check != chosen[-1] or not any(outcome.code for outcome in outcomes):
            return ""
        return f"all checks passed, and then the ranks did not end well\n{_outputs(PASSED + check, outcomes)}"
    if check not in unfinished:
        return ""
    if check != unfinished[0]:
        return f"was not reached: {unfinished[0]} did not pass, in the same job"
    return _outputs(BEGINS + check, outcomes)


def _outputs(since: str, outcomes: Sequence[Outcome]) -> str:
    """What each rank has written after a line, or everything where it did not come so far."""
    texts = (outcome.output.rpartition(f"\n{since}\n")[2] for outcome in outcomes)
    return "\n".join(
        f"--- rank {rank}: exit code {outcome.code}\n{text}"
        for rank, (outcome, text) in enumerate(zip(outcomes, texts, strict=True))
    )
