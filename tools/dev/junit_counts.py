"""Prints `PASSED FAILED LEFT_OUT` of one JUnit file as ctest and pytest write it.

A skipped test counts as failed: here a test that did not run is not a test that passed. So does a missing, broken or
empty file, because that is what a crashed run or a filter that matched nothing leaves behind. The one exception: tests
that need root are left out where the user is not root, and counted as left out. In CI they count as failed.
"""

import os
import sys
from xml.etree import ElementTree

LEFT_BEHIND = "left behind: "
NEEDS_ROOT = "needs root"  # How tests/conftest.py begins the reason of a skip.


def counts(path: str) -> tuple[int, int, int]:
    """The numbers of test cases that passed, that were left out and that did anything else, which is (0, 1, 0) when
    there is no usable report."""
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        print(f"no test report: {error}", file=sys.stderr)
        return 0, 1, 0
    if not cases:
        print(f"{path}: not a single test ran", file=sys.stderr)
        return 0, 1, 0
    not_passed = [
        case for case in cases if case.get("status") in ("fail", "notrun", "disabled") or len(case_problems(case)) > 0
    ]
    left_out = [case for case in not_passed if was_left_out(case)]
    for case in not_passed:
        words = "left out" if case in left_out else "not passed"
        print(f"{words}: {case.get('classname', '')} {case.get('name', '')}", file=sys.stderr)
    for case in cases:
        for line in left_behind(case):
            print(f"left behind: {case.get('classname', '')} {case.get('name', '')}: {line}", file=sys.stderr)
    return len(cases) - len(not_passed), len(not_passed) - len(left_out), len(left_out)


def case_problems(case: ElementTree.Element) -> list[str]:
    """The tags by which pytest and ctest mark a case that did not pass."""
    return [child.tag for child in case if child.tag in ("failure", "error", "skipped")]


def left_behind(case: ElementTree.Element) -> list[str]:
    """Processes and ports, as tests/support/leftovers.py and tests/support/run_test.cc name them."""
    in_python = [found.get("value", "") for found in case.findall("properties/property[@name='left_behind']")]
    in_cpp = [line for line in case.findtext("system-out", "").splitlines() if line.startswith(LEFT_BEHIND)]
    return [*in_python, *(line.removeprefix(LEFT_BEHIND) for line in in_cpp)]


def was_left_out(case: ElementTree.Element) -> bool:
    if os.environ.get("CI") == "true" or case_problems(case) != ["skipped"]:
        return False
    return all(child.get("message", "").startswith(NEEDS_ROOT) for child in case.iter("skipped"))


if __name__ == "__main__":
    print(*counts(sys.argv[1]))
