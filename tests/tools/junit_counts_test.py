"""The one line that CI reads is made here: a run that crashed, skipped or tested nothing must never count as passed."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "dev" / "junit_counts.py"


def counts(report: Path) -> str:
    return subprocess.run([sys.executable, str(SCRIPT), str(report)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ('<testcase name="a" status="run"/><testcase name="b"/>', "2 0\n"),
        ('<testcase name="a" status="run"/><testcase name="b" status="fail"><failure/></testcase>', "1 1\n"),
        ('<testcase name="a"><error/></testcase>', "0 1\n"),
        ('<testcase name="a"><skipped/></testcase><testcase name="b"/>', "1 1\n"),
        ('<testcase name="a" status="notrun"/>', "0 1\n"),
        ("", "0 1\n"),
    ],
)
def test_only_what_ran_and_passed_counts_as_passed(tmp_path: Path, cases: str, expected: str) -> None:
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    assert counts(report) == expected


def test_a_missing_report_is_a_failure(tmp_path: Path) -> None:
    assert counts(tmp_path / "none.xml") == "0 1\n"


def test_a_report_cut_short_is_a_failure(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text('<testsuite><testcase name="a"/>', encoding="utf-8")
    assert counts(report) == "0 1\n"
