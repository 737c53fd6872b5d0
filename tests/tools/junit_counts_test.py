"""The one line that CI reads is made here: a run that crashed, skipped or tested nothing must never count as passed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "dev" / "junit_counts.py"


def counts(report: Path, ci: str = "true") -> str:
    environment = {**os.environ, "CI": ci}
    command = [sys.executable, str(SCRIPT), str(report)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ('<testcase name="a" status="run"/><testcase name="b"/>', "2 0 0\n"),
        ('<testcase name="a" status="run"/><testcase name="b" status="fail"><failure/></testcase>', "1 1 0\n"),
        ('<testcase name="a"><error/></testcase>', "0 1 0\n"),
        ('<testcase name="a"><skipped/></testcase><testcase name="b"/>', "1 1 0\n"),
        ('<testcase name="a" status="notrun"/>', "0 1 0\n"),
        ("", "0 1 0\n"),
    ],
)
def test_only_what_ran_and_passed_counts_as_passed(tmp_path: Path, cases: str, expected: str) -> None:
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    assert counts(report) == expected


def test_a_missing_report_is_a_failure(tmp_path: Path) -> None:
    assert counts(tmp_path / "none.xml") == "0 1 0\n"


def test_a_report_cut_short_is_a_failure(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text('<testsuite><testcase name="a"/>', encoding="utf-8")
    assert counts(report) == "0 1 0\n"


NEEDS_ROOT = '<testcase name="a"><skipped message="needs root"/></testcase><testcase name="b"/>'


@pytest.mark.parametrize(("ci", "expected"), [("", "1 0 1\n"), ("true", "1 1 0\n")])
def test_what_needs_root_is_left_out_and_counted_but_not_in_ci(tmp_path: Path, ci: str, expected: str) -> None:
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{NEEDS_ROOT}</testsuite></testsuites>", encoding="utf-8")
    assert counts(report, ci) == expected


def test_what_tests_of_both_languages_left_behind_is_named(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    property_ = '<properties><property name="left_behind" value="port 80"/></properties>'
    cases = (
        f'<testcase classname="tests.a_test" name="test_a">{property_}</testcase>'
        '<testcase classname="net.B.c" name="net.B.c"><system-out>x\nleft behind: process 7 (sleep)\n</system-out>'
        "</testcase>"
    )
    report.write_text(f"<testsuite>{cases}</testsuite>", encoding="utf-8")
    command = [sys.executable, str(SCRIPT), str(report)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "2 0 0\n"
    assert result.stderr.splitlines() == [
        "left behind: tests.a_test test_a: port 80",
        "left behind: net.B.c net.B.c: process 7 (sleep)",
    ]
