"""Checks that no range-based `for` iterates over a view of a temporary, which C++20 destroys before the loop's body.

`for (auto& [name, value] : make_table().items())` keeps alive what items() returns, not the table. The check reads
text: it refuses a view (VIEWS) of what a call returns, unless that call returns a reference (REFERENCES).
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from repository import report, source_files

VIEWS = {"items", "value", "at", "front", "back", "first", "last", "subspan", "substr"}
REFERENCES = {"at", "front", "back"}
LAST_CALL = re.compile(r"(?:\.|->)(\w+)\([^()]*\)$")
CALLEE = re.compile(r"(?:\.|->)?(\w+)(?:<[^()]*>)?$")


def opening(text: str) -> int:
    """The position of the bracket that the last character closes."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] in ")]}") - (text[at] in "([{")
        if depth == 0:
            return at
    return 0


def ranges(text: str) -> Iterator[tuple[int, str]]:
    """Every range-based `for`: its line, and what it iterates over."""
    for match in re.finditer(r"\bfor\s*\(", text):
        depth, at, colon, classic = 1, match.end(), 0, False
        while depth > 0 and at < len(text):
            depth += (text[at] in "([{") - (text[at] in ")]}")
            if depth == 1:
                classic = classic or text[at] == ";"
                if not colon and text[at] == ":" and ":" not in (text[at - 1], text[at + 1]):
                    colon = at
            at += 1
        if colon and not classic:
            yield text.count("\n", 0, match.start()) + 1, " ".join(text[colon + 1 : at - 1].split())


def is_dangling(expression: str) -> bool:
    last = LAST_CALL.search(expression)
    if not last or last[1] not in VIEWS:
        return False
    owner = expression[: last.start()]
    while owner.endswith(")"):
        owner = owner[: opening(owner)]
        callee = CALLEE.search(owner)
        if not callee or callee[1] not in REFERENCES:
            return callee is not None  # A mere pair of brackets is not judged.
        owner = owner[: callee.start()]
    return False


def problems(root: Path) -> list[str]:
    """All violations under `root`, one line each."""
    return [
        f"{path}:{line}: iterates over a view of a temporary, which is gone before the first pass; keep what "
        f"`{expression}` is a view of in a variable"
        for path in source_files(root, ".cc", ".h")
        for line, expression in ranges((root / path).read_text(encoding="utf-8"))
        if is_dangling(expression)
    ]


if __name__ == "__main__":
    sys.exit(report(problems))
