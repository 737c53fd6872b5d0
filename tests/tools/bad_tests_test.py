"""A bad test is one failure with a name: whether it fails, hangs or crashes, all others run and are counted."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
LIMIT_SECONDS = 4

PLANTED = """
import os, time
import pytest

@pytest.mark.parametrize("number", range(5))
def test_good_before(number): pass
def test_fails(): assert False
def test_hangs(): time.sleep(600)
def test_crashes(): os.abort()
def test_ends_the_process(): os._exit(0)
@pytest.fixture
def broken(): raise OSError("no fixture")
def test_without_its_fixture(broken): pass
@pytest.mark.parametrize("number", range(5))
def test_good_after(number): pass
"""
BAD = {"test_fails", "test_hangs", "test_crashes", "test_ends_the_process", "test_without_its_fixture"}


def run_planted(folder: Path) -> tuple[Path, str]:
    """Runs the planted tests as ./dev test does, with a shorter limit; the report, and what was printed."""
    (folder / "tests").mkdir()
    (folder / "tests" / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "tests" / "planted_test.py").write_text(PLANTED, encoding="utf-8")
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "faulthandler_exit_on_timeout = true" in settings
    settings = settings[settings.index("[tool.pytest.ini_options]") :].split("[tool.ruff]")[0]
    settings = re.sub(r"^pythonpath = .*$", f'pythonpath = ["{TESTS}/support"]', settings, flags=re.MULTILINE)
    settings = re.sub(r"^(faulthandler_timeout) = .*$", rf"\1 = {LIMIT_SECONDS}", settings, flags=re.MULTILINE)
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "--junitxml", str(report)]
    result = subprocess.run([*command, "tests"], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    return report, result.stdout + result.stderr


def test_each_bad_test_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    report, printed = run_planted(tmp_path)
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = {
        case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None
    }
    assert {re.sub(r".*::", "", name) for name in failed} == BAD, printed
    assert len(cases) == len(BAD) + 10, printed
    counts = [sys.executable, str(ROOT / "tools" / "dev" / "junit_counts.py"), str(report)]
    counted = subprocess.run(counts, capture_output=True, text=True, check=True)
    assert counted.stdout == f"10 {len(BAD)} 0\n"
    for name in BAD:
        assert name in counted.stderr
    assert "in test_hangs" in printed  # Where it hung.
