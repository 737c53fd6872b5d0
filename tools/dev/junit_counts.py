"""Prints `PASSED FAILED` of one JUnit file as ctest and pytest write it.

A skipped test counts as failed: here a test that did not run is not a test that passed. So does a missing, broken or
empty file, because that is what a crashed run or a filter that matched nothing leaves behind.
"""

import sys
from xml.etree import ElementTree


def counts(path: str) -> tuple[int, int]:
    """The numbers of test cases that passed and that did anything else; (0, 1) when there is no usable report."""
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        print(f"no test report: {error}", file=sys.stderr)
        return 0, 1
    if not cases:
        print(f"{path}: not a single test ran", file=sys.stderr)
        return 0, 1
    failed = [
        case for case in cases if case.get("status") in ("fail", "notrun", "disabled") or len(case_problems(case)) > 0
    ]
    for case in failed:
        print(f"not passed: {case.get('classname', '')} {case.get('name', '')}", file=sys.stderr)
    return len(cases) - len(failed), len(failed)


def case_problems(case: ElementTree.Element) -> list[str]:
    """The tags by which pytest and ctest mark a case that did not pass."""
    return [child.tag for child in case if child.tag in ("failure", "error", "skipped")]


if __name__ == "__main__":
    print(*counts(sys.argv[1]))
