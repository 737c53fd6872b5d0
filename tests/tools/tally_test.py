"""./dev and .ci/run end with one line and an exit code that agree with each other, whatever happened in between."""

import subprocess
from pathlib import Path

import pytest

COMMON = Path(__file__).resolve().parents[2] / "tools" / "dev" / "common.sh"


def run(script: str) -> subprocess.CompletedProcess[str]:
    text = f'set -uo pipefail; ROOT=/nowhere; unset GYRE_DEV_TALLY; source "{COMMON}"; {script}'
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("script", "line", "good"),
    [
        ("count a 3 0; count b 4 0", "7 passed, 0 failed", True),
        ("count a 3 0; count b 4 1", "7 passed, 1 failed", False),
        ("check yes true; check no false", "1 passed, 1 failed", False),
        ("true", "0 passed, 0 failed", False),
        ("count a 3 0 2; count b 1 0", "4 passed, 0 failed, 2 skipped", True),
    ],
)
def test_the_sum_is_the_last_line_and_decides_the_exit_code(script: str, line: str, good: bool) -> None:
    result = run(f"open_tally; {script}; close_tally")
    assert result.stdout == f"{line}\n"
    assert (result.returncode == 0) == good


def test_a_verb_inside_a_verb_leaves_the_sum_to_the_outer_one() -> None:
    inner = f'ROOT=/nowhere; source "{COMMON}"; open_tally; count inner 2 0; close_tally'
    result = run(f"open_tally; count outer 1 0; bash -c '{inner}'; close_tally")
    assert result.stdout == "3 passed, 0 failed\n"
    assert result.returncode == 0


def test_tests_that_did_not_pass_are_named_again_at_the_end() -> None:
    result = run('open_tally; echo "not passed: a.b c" >>"$GYRE_DEV_TALLY.said"; count a 1 1; count b 1 0; close_tally')
    assert result.stderr.splitlines() == ["not passed: a.b c", "dev: a: 1 failed"]
