"""Prints what took longest in the JUnit files of ctest and pytest: the slowest tests, each folder's sum, and that of
each wing beside its budget (tools/test_budgets.txt).

durations.py REPORT...
"""

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

SHOWN = 50
BUDGETS = Path(__file__).resolve().parents[1] / "test_budgets.txt"


def durations(report: Path) -> list[tuple[float, str, str]]:
    """(seconds, folder, name) of each test: of C++ its room, of Python the folder of its file."""
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        place, name, seconds = case.get("classname", ""), case.get("name", ""), float(case.get("time", 0))
        if place.startswith(("tests.", "python.")):
            folders = place.split(".")[:-1]
            found.append((seconds, "/".join(folders), f"{'/'.join(place.split('.'))}.py::{name}"))
        else:
            found.append((seconds, f"C++ {name.split('.')[0]}", name))
    return found


def table(tests: list[tuple[float, str, str]]) -> list[str]:
    sums: dict[str, list[float]] = defaultdict(list)
    for seconds, folder, _ in tests:
        sums[folder].append(seconds)
    lines = [f"{'seconds':>9}  the slowest {min(SHOWN, len(tests))} of {len(tests)} tests"]
    lines += [f"{seconds:9.2f}  {name}" for seconds, _, name in sorted(tests, reverse=True)[:SHOWN]]
    lines += ["", f"{'seconds':>9}  {'tests':>5}  folder"]
    by_sum = sorted(sums.items(), key=lambda item: -sum(item[1]))
    lines += [f"{sum(each):9.2f}  {len(each):5}  {folder}" for folder, each in by_sum]
    return [*lines, f"{sum(seconds for seconds, _, _ in tests):9.2f}  {len(tests):5}  all"]


def read_budgets(text: str) -> dict[str, tuple[float, list[str]]]:
    """Of each wing: the seconds that it may take, and the paths of its tests."""
    budgets = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            limit, _, rest = line.partition(" ")
            wing, _, paths = rest.partition(": ")
            budgets[wing] = float(limit), paths.split()
    return budgets


def compared(tests: list[tuple[float, str, str]], budgets: dict[str, tuple[float, list[str]]]) -> list[str]:
    """A line for each wing of which a test has run. A test is of a wing by its file or a folder above it."""
    lines = []
    for wing, (limit, paths) in budgets.items():
        starts = tuple(f"{path}::" if path.endswith(".py") else f"{path}/" for path in paths)
        times = [seconds for seconds, _, name in tests if name.startswith(starts)]
        if times:
            over = f"  OVER by {sum(times) - limit:.2f}" if sum(times) > limit else ""
            lines.append(f"{sum(times):9.2f}  {limit:6.0f}  {wing}{over}")
    return ["", f"{'seconds':>9}  budget  wing", *lines] if lines else []


if __name__ == "__main__":
    reports = [Path(argument) for argument in sys.argv[1:] if Path(argument).is_file()]
    tests = [test for report in reports for test in durations(report)]
    print("\n".join([*table(tests), *compared(tests, read_budgets(BUDGETS.read_text(encoding="utf-8")))]))
