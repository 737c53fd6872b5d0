"""Checks that share a job of ranks fail by themselves: each by its own name, and none because of another one."""

import subprocess
import sys
from pathlib import Path

import pytest
from checks import BEGINS, CHOSEN, PASSED, each, problem_of, run_each
from rank_template import Outcome

ROOT = Path(__file__).resolve().parents[2]
CHOICE = ["first", "second", "third"]


def said(*passed: str, begun: str = "", code: int = 0) -> Outcome:
    lines = [line for name in passed for line in (f"{BEGINS}{name}", f"words of {name}", f"{PASSED}{name}")]
    return Outcome(code, "\n".join(["before", *lines, *([f"{BEGINS}{begun}", "Traceback"] if begun else []), ""]))


def test_all_pass() -> None:
    outcomes = [said(*CHOICE)] * 2
    assert [problem_of(name, CHOICE, outcomes) for name in CHOICE] == ["", "", ""]


def test_the_check_that_fails_on_one_rank_is_named_and_those_after_it_were_not_reached() -> None:
    first, second, third = (
        problem_of(name, CHOICE, [said(*CHOICE), said("first", begun="second", code=1)]) for name in CHOICE
    )
    assert first == ""
    assert "rank 1: exit code 1\nTraceback" in second
    assert "words of first" not in second
    assert third == "was not reached: second did not pass, in the same job"


def test_a_job_that_breaks_before_its_first_check_fails_it_with_all_that_was_said() -> None:
    outcome = Outcome(-6, "before\nAborted\n")
    assert "exit code -6\nbefore\nAborted" in problem_of("first", CHOICE, [outcome, said(*CHOICE)])
    assert problem_of("second", CHOICE, [outcome]) == "was not reached: first did not pass, in the same job"


def test_ranks_that_end_badly_after_all_checks_fail_the_last_one() -> None:
    outcomes = [said(*CHOICE), said(*CHOICE, code=-11)]
    assert [bool(problem_of(name, CHOICE, outcomes)) for name in CHOICE] == [False, False, True]


def test_a_rank_runs_the_chosen_checks_in_their_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def first() -> None:
        ran.append("first")

    def second() -> None:
        ran.append("second")

    def third() -> None:
        ran.append("third")

    monkeypatch.setenv(CHOSEN, "third,first")
    run_each([first, second, third])
    assert ran == ["first", "third"]
    assert f"{PASSED}third" in capsys.readouterr().out.splitlines()
    assert each([first]).args[1] == [first]


PLANTED = """
from checks import each, run_each

def good(): pass
def bad(): raise ValueError("planted")
def after(): pass
CHECKS = [good, bad, after]

def body(): run_each(CHECKS)

@each(CHECKS)
def test_job(run_checks, check): run_checks(2, body, check)
"""
CONFTEST = """
import pytest
from ranks_fixture import run_checks, run_ranks, two_templates

@pytest.fixture(scope="session")
def templates(): yield from two_templates("json")

@pytest.fixture
def evidence(): return []
"""


@pytest.mark.parametrize(
    ("word", "failures"),
    [("", {"test_job[bad]": "planted", "test_job[after]": "was not reached: bad"}), ("good", {}), ("after", {})],
)
def test_items_of_one_job_pass_and_fail_each_by_its_name(tmp_path: Path, word: str, failures: dict[str, str]) -> None:
    (tmp_path / "job_test.py").write_text(PLANTED, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}/tests/support\npython_files = *_test.py\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", word, "-rfE", "."]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    for name, reason in failures.items():
        assert f"FAILED job_test.py::{name}" in out
        assert reason in out
    assert out.count("FAILED ") == len(failures)
    assert "1 passed" in out
