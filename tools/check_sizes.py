"""Checks that no function is longer than 70 lines and no file longer than 500, in C++ and Python.

tools/size_exceptions.txt lists the few that are, as `PATH LINES` for a file and `PATH:FUNCTION LINES` for a function.
The list may only shrink: an entry that is not needed, that has grown, or that the base commit lacks is an error.
"""

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

from cpp_functions import functions as cpp_functions
from repository import base_commit, git, report, source_files

MOST_FUNCTION_LINES = 70
MOST_FILE_LINES = 500
EXCEPTIONS = Path("tools/size_exceptions.txt")


@dataclass(frozen=True)
class Excess:
    """Something longer than it may be: a file, or `file:function`."""

    what: str
    line: int
    lines: int
    limit: int


def python_functions(text: str) -> list[tuple[str, int, int]]:
    """(name, first line, last line) of every function, methods and nested ones included."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))
    return [(node.name, node.lineno, node.end_lineno or node.lineno) for node in nodes]


def excesses(root: Path) -> list[Excess]:
    """Everything that is too long, the exceptions included."""
    found = []
    for path in source_files(root, ".cc", ".h", ".py"):
        text = (root / path).read_text(encoding="utf-8")
        file_lines = len(text.splitlines())
        if file_lines > MOST_FILE_LINES:
            found.append(Excess(path.as_posix(), 1, file_lines, MOST_FILE_LINES))
        try:
            named = python_functions(text) if path.suffix == ".py" else cpp_functions(text)
        except (SyntaxError, ValueError) as error:
            raise SystemExit(f"{path}: cannot be read as a program: {error}") from error
        for name, first, last in named:
            if last - first + 1 > MOST_FUNCTION_LINES:
                found.append(Excess(f"{path.as_posix()}:{name}", first, last - first + 1, MOST_FUNCTION_LINES))
    return found


def parse_exceptions(text: str) -> dict[str, int]:
    """What -> how long it is allowed to be."""
    lines = (line.split("#")[0].split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in lines if words}


def read_exceptions(root: Path) -> tuple[dict[str, int], dict[str, int] | None]:
    """The exceptions now, and at the base commit (None where there is none to compare with)."""
    file = root / EXCEPTIONS
    now = parse_exceptions(file.read_text(encoding="utf-8")) if file.exists() else {}
    base = base_commit(root)
    before = git(root, "show", f"{base}:{EXCEPTIONS.as_posix()}") if base else None
    return now, parse_exceptions(before) if before is not None else None


def problems(root: Path) -> list[str]:
    """All violations under `root`, one line each."""
    now, before = read_exceptions(root)
    found = []
    needed = set()
    for excess in excesses(root):
        allowed = now.get(excess.what, excess.limit)
        if excess.what in now:
            needed.add(excess.what)
        if excess.lines > allowed:
            found.append(f"{excess.what} (line {excess.line}): {excess.lines} lines, at most {allowed}")
    for what in sorted(now.keys() - needed):
        found.append(f"{EXCEPTIONS}: {what} is not too long any more; remove the entry")
    if before is not None:
        for what in sorted(what for what, lines in now.items() if lines > before.get(what, 0)):
            found.append(f"{EXCEPTIONS}: {what} is new or has grown; the list may only shrink")
    return found


if __name__ == "__main__":
    sys.exit(report(problems))
