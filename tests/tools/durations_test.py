"""`./dev test --durations` shows where the time of both languages goes, so that somebody can shorten it."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "dev" / "durations.py"
CPP = '<testsuite><testcase name="net.Link.sends" classname="net.Link.sends" time="0.5"/></testsuite>'
PYTHON = (
    '<testsuites><testsuite><testcase classname="tests.e2e.run_test" name="test_a[2]" time="3.25"/>'
    '<testcase classname="tests.e2e.run_test" name="test_b" time="1"/></testsuite></testsuites>'
)


def test_tests_of_both_languages_stand_in_one_table_and_folders_in_another(tmp_path: Path) -> None:
    (tmp_path / "ctest.xml").write_text(CPP, encoding="utf-8")
    (tmp_path / "pytest.xml").write_text(PYTHON, encoding="utf-8")
    reports = [str(tmp_path / name) for name in ("ctest.xml", "pytest.xml", "missing.xml")]
    result = subprocess.run([sys.executable, str(SCRIPT), *reports], capture_output=True, text=True, check=True)
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "seconds the slowest 3 of 3 tests",
        "3.25 tests/e2e/run_test.py::test_a[2]",
        "1.00 tests/e2e/run_test.py::test_b",
        "0.50 net.Link.sends",
        "",
        "seconds tests folder",
        "4.25 2 tests/e2e",
        "0.50 1 C++ net",
        "4.75 3 all",
    ]
