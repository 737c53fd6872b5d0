"""A bad test is one failure with a name: whether it fails, hangs, crashes or leaves something behind, all others run
and are counted, in Python and in C++."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
LIMIT_SECONDS = 4

PLANTED = """
import os, socket, subprocess, time
import pytest

SOCKETS = []

@pytest.mark.parametrize("number", range(5))
def test_good_before(number): pass
def test_fails(): assert False
def test_hangs(): time.sleep(600)
def test_crashes(): os.abort()
def test_ends_the_process(): os._exit(0)
def test_leaves_a_process(): subprocess.Popen(["sleep", "611"])
def test_leaves_a_daemon(): subprocess.run(["sh", "-c", "setsid sleep 612 &"])
def test_leaves_a_port(): SOCKETS.append(socket.create_server(("127.0.0.1", 0)))
@pytest.fixture(scope="module")
def server():
    with subprocess.Popen(["sleep", "613"]) as process:
        yield process
        process.kill()
def test_shares_a_server(server): assert server.poll() is None
def test_shares_a_server_too(server): assert server.poll() is None
@pytest.fixture
def broken(): raise OSError("no fixture")
def test_without_its_fixture(broken): pass
@pytest.mark.parametrize("number", range(5))
def test_good_after(number): pass
"""
LEFT = {
    "test_leaves_a_process": r"left behind: process \d+ \(sleep 611\)",
    "test_leaves_a_daemon": r"left behind: process \d+ \(sleep 612\)",
    "test_leaves_a_port": r"left behind: port \d+, open in the tests' own process",
}
BAD = {"test_fails", "test_hangs", "test_crashes", "test_ends_the_process", "test_without_its_fixture", *LEFT}
GOOD = 12


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
    environment = {**os.environ, "GYRE_TEST_END_SECONDS": "0.5", "GYRE_TEST_LEFTOVERS": "fail"}
    result = subprocess.run(
        [*command, "tests"], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    return report, result.stdout + result.stderr


def counts_of(report: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "dev" / "junit_counts.py"), str(report)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def running() -> set[str]:
    """The command lines of all processes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
    return found


def test_each_bad_test_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    report, printed = run_planted(tmp_path)
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = {
        case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None
    }
    assert {re.sub(r".*::", "", name) for name in failed} == BAD, printed
    assert len(cases) == len(BAD) + GOOD, printed
    counted = counts_of(report)
    assert counted.stdout == f"{GOOD} {len(BAD)} 0\n"
    for name in BAD:
        assert name in counted.stderr
    assert "in test_hangs" in printed  # Where it hung.
    for name, words in LEFT.items():
        texts = [
            error.get("message", "") + (error.text or "")
            for case in cases
            if case.get("name") == name
            for error in case
        ]
        assert re.search(words, "".join(texts)), printed
    assert running().isdisjoint({"sleep 611", "sleep 612", "sleep 613"})


BAD_IN_CPP = {
    "Bad.fails": "Failure",
    "Bad.hangs": "",
    "Bad.hangs_with_a_child": "",
    "Bad.crashes": "",
    "Bad.ends_the_process": "the process ended, with code 0, before the test was over",
    "Bad.leaves_a_process": "(sleep 601 )",
    "Bad.leaves_a_process_in_a_session_of_its_own": "(sleep 602 )",
    "Bad.leaves_a_process_and_crashes": "left behind: process",
}


def test_so_is_a_bad_test_in_cpp(gyre: Path, tmp_path: Path) -> None:
    programs = gyre.parent.parent / "tests"
    tests = [*BAD_IN_CPP, "Good.passes"]
    lines = [f"add_test({name} {programs}/run_test {programs}/bad_tests --gtest_filter={name})" for name in tests]
    lines += [
        f"set_tests_properties({name} PROPERTIES TIMEOUT {LIMIT_SECONDS if 'hangs' in name else 120})" for name in tests
    ]
    (tmp_path / "CTestTestfile.cmake").write_text("\n".join(lines), encoding="utf-8")
    report = tmp_path / "report.xml"
    command = ["ctest", "-j", "4", "--output-junit", str(report)]
    environment = {**os.environ, "GYRE_TEST_END_SECONDS": "1", "GYRE_TEST_LEFTOVERS": "fail"}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    counted = counts_of(report)
    assert counted.stdout == f"1 {len(BAD_IN_CPP)} 0\n", result.stdout
    said = {
        case.get("name", ""): case.findtext("system-out", "") for case in ElementTree.parse(report).iter("testcase")
    }
    for name, words in BAD_IN_CPP.items():
        assert f"not passed: {name} {name}" in counted.stderr
        assert words in said[name]
    assert running().isdisjoint({"sleep 601", "sleep 602", "sleep 603", "sleep 604", "sh -c sleep 604"})
