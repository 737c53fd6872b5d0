"""`./dev test --durations` shows where the time of both languages goes, so that somebody can shorten it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "dev" / "durations.py"
BUDGETS = ROOT / "tools" / "test_budgets.txt"
CPP = '<testsuite><testcase name="net.Link.sends" classname="net.Link.sends" time="0.5"/></testsuite>'
PYTHON = (
    '<testsuites><testsuite><testcase classname="tests.e2e.run_test" name="test_a[2]" time="3.25"><properties>'
    '<property name="cpu_seconds" value="2.50"/></properties></testcase>'
    '<testcase classname="tests.e2e.run_test" name="test_b" time="1"/></testsuite></testsuites>'
)


def test_tests_of_both_languages_stand_in_one_table_and_folders_in_another(tmp_path: Path) -> None:
    (tmp_path / "ctest.xml").write_text(CPP, encoding="utf-8")
    (tmp_path / "pytest.xml").write_text(PYTHON, encoding="utf-8")
    reports = [str(tmp_path / name) for name in ("ctest.xml", "pytest.xml", "missing.xml")]
    result = subprocess.run([sys.executable, str(SCRIPT), *reports], capture_output=True, text=True, check=True)
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "seconds CPU the slowest 3 of 3 tests",
        "3.25 2.50 tests/e2e/run_test.py::test_a[2]",
        "1.00 - tests/e2e/run_test.py::test_b",
        "0.50 - net.Link.sends",
        "",
        "seconds CPU tests folder",
        "4.25 2.50 2 tests/e2e",
        "0.50 - 1 C++ net",
        "4.75 2.50 3 all",
    ]


def test_a_wing_over_its_budget_is_named(tmp_path: Path) -> None:
    cases = [("tests.device.world_test", 220.5), ("tests.device.more.world_test", 20.0), ("tests.e2e.stage_test", 7)]
    lines = [f'<testcase classname="{place}" name="test_a" time="{seconds}"/>' for place, seconds in cases]
    # Not of the wing "device", nor of the file stage_test.py.
    lines += [
        f'<testcase classname="tests.{one}_test" name="test_b" time="500"/>' for one in ("devices.x", "e2e.upstage")
    ]
    (tmp_path / "pytest.xml").write_text(f"<testsuite>{''.join(lines)}</testsuite>", encoding="utf-8")
    command = [sys.executable, str(SCRIPT), str(tmp_path / "pytest.xml")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [" ".join(line.split()) for line in result.stdout.splitlines()][-3:] == [
        "seconds budget wing",
        "240.50 240 device OVER by 0.50",
        "7.00 120 staging",
    ]


def test_budgets_are_of_tests_that_there_are() -> None:
    rows = [line for line in BUDGETS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert rows
    for row in rows:
        limit, _, rest = row.partition(" ")
        assert float(limit) > 0
        paths = rest.partition(": ")[2].split()
        assert paths, row
        assert [path for path in paths if not (ROOT / path).exists()] == []
