"""Prints what took longest in the JUnit files of ctest and pytest: the slowest tests, and each folder's sum.

durations.py REPORT...
"""

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

SHOWN = 50


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


if __name__ == "__main__":
    reports = [Path(argument) for argument in sys.argv[1:] if Path(argument).is_file()]
    print("\n".join(table([test for report in reports for test in durations(report)])))
