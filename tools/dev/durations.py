"""Prints what took longest in the JUnit files of ctest and pytest: the slowest tests, each folder's sum, and that of
each wing beside its budget (tools/test_budgets.txt). Beside the seconds of a Python test stands its CPU time, that of
its processes included (tests/support/cpu_time.py): what it only waited for is the difference.

durations.py REPORT...
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

SHOWN = 50
BUDGETS = Path(__file__).resolve().parents[1] / "test_budgets.txt"


@dataclass(frozen=True)
class Test:
    """One that has run."""

    name: str
    folder: str  # Of C++ the room, of Python the folder of its file.
    seconds: float
    cpu_seconds: float | None  # Of Python only.


def tests_of(report: Path) -> list[Test]:
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        place, name, seconds = case.get("classname", ""), case.get("name", ""), float(case.get("time", 0))
        if place.startswith(("tests.", "python.")):
            path = place.replace(".", "/")
            measured = case.find("properties/property[@name='cpu_seconds']")
            cpu_seconds = None if measured is None else float(measured.get("value", 0))
            found.append(Test(f"{path}.py::{name}", path.rpartition("/")[0], seconds, cpu_seconds))
        else:
            found.append(Test(name, f"C++ {name.split('.')[0]}", seconds, None))
    return found


def cpu_column(tests: Sequence[Test]) -> str:
    measured = [test.cpu_seconds for test in tests if test.cpu_seconds is not None]
    return f"{sum(measured):9.2f}" if measured else f"{'-':>9}"


def table(tests: list[Test]) -> list[str]:
    folders: dict[str, list[Test]] = defaultdict(list)
    for test in tests:
        folders[test.folder].append(test)
    columns = f"{'seconds':>9} {'CPU':>9}"
    slowest = sorted(tests, key=lambda test: (-test.seconds, test.name))[:SHOWN]
    lines = [f"{columns}  the slowest {len(slowest)} of {len(tests)} tests"]
    lines += [f"{test.seconds:9.2f} {cpu_column([test])}  {test.name}" for test in slowest]
    lines += ["", f"{columns}  tests  folder"]
    by_sum = sorted(folders.items(), key=lambda item: -seconds_of(item[1]))
    return [*lines, *(sum_line(each, folder) for folder, each in by_sum), sum_line(tests, "all")]


def seconds_of(tests: Sequence[Test]) -> float:
    return sum(test.seconds for test in tests)


def sum_line(tests: Sequence[Test], name: str) -> str:
    return f"{seconds_of(tests):9.2f} {cpu_column(tests)}  {len(tests):5}  {name}"


def read_budgets(text: str) -> dict[str, tuple[float, list[str]]]:
    """Of each wing: the seconds that it may take, and the paths of its tests."""
    budgets = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            limit, _, rest = line.partition(" ")
            wing, _, paths = rest.partition(": ")
            budgets[wing] = float(limit), paths.split()
    return budgets


def compared(tests: list[Test], budgets: dict[str, tuple[float, list[str]]]) -> list[str]:
    """A line for each wing of which a test has run. A test is of a wing by its file or a folder above it."""
    lines = []
    for wing, (limit, paths) in budgets.items():
        starts = tuple(f"{path}::" if path.endswith(".py") else f"{path}/" for path in paths)
        seconds = seconds_of([test for test in tests if test.name.startswith(starts)])
        if seconds > 0:
            over = f"  OVER by {seconds - limit:.2f}" if seconds > limit else ""
            lines.append(f"{seconds:9.2f}  {limit:6.0f}  {wing}{over}")
    return ["", f"{'seconds':>9}  budget  wing", *lines] if lines else []


if __name__ == "__main__":
    reports = [Path(argument) for argument in sys.argv[1:] if Path(argument).is_file()]
    tests = [test for report in reports for test in tests_of(report)]
    print("\n".join([*table(tests), *compared(tests, read_budgets(BUDGETS.read_text(encoding="utf-8")))]))
