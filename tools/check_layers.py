"""Checks the #include lines, and Python's imports, against the levels of the house (ARCHITECTURE.md).

A folder of gyre/ includes itself and lower levels, never a sibling of its level; `internal/` belongs to the folder it
stands in; libtorch appears only where it is allowed. A folder that is not in the table is an error: give it a level.
In a folder that is divided into rooms, a room includes itself and the rooms before it. No file includes itself by way
of others. `python_layers` says the same of the modules of python/gyre.
"""

import re
import sys
from pathlib import Path

import python_layers
from circles import circles
from repository import report, source_files

LEVELS = {
    "base": 0,
    "net": 1,
    "cli": 1,
    "metrics": 1,
    "group": 2,
    "launch": 2,
    "page": 2,
    "collectives": 3,
    "data": 3,
    "engine": 4,
    "params": 4,
    "store": 4,
    "jobs": 5,
    "models": 5,
    "train": 5,
}
# Lower levels that a folder must do without all the same: data knows nothing of networks, and the job service starts
# programs without being one rank of them.
FORBIDDEN = {"data": {"net", "group"}, "jobs": {"group", "collectives", "data", "engine", "params"}}
# Folders that are divided into rooms, lowest room first.
ROOMS = {
    "store": ("sources", "staging", "uploading", "reading", "node"),
    "jobs": (
        "spec",
        "resources",
        "orders",
        "containers",
        "node",
        "hub",
        "catalog",
        "scheduler",
        "drivers",
        "service",
        "http",
        "client",
    ),
}
# Rooms outside gyre/: they may use every public header of gyre/; nobody includes them but themselves.
OUTER_ROOMS = {"apps", "workloads", "python", "bench", "fuzz", "tests", "examples"}
# Tests that stand in tests/ because they are run against several back ends, and yet are one folder's own.
OWN_TESTS = {"tests/conformance": "gyre/group"}
MAY_INCLUDE_TORCH = ("gyre/models/", "gyre/train/", "workloads/", "bench/", "examples/", "tests/")
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(text: str) -> list[tuple[int, str, bool]]:
    """(line number, what is included, whether in quotes) for every #include line."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            found.append((number, match.group(2), match.group(1) == '"'))
    return found


def folder_problem(path: Path) -> str | None:
    """What is wrong with where a source file stands."""
    if path.parts[0] in OUTER_ROOMS:
        return None
    if path.parts[0] != "gyre" or len(path.parts) < 3:
        return "stands in no room of the house"
    if path.parts[1] not in LEVELS:
        return f"gyre/{path.parts[1]} has no level; add it to tools/check_layers.py and ARCHITECTURE.md"
    folder = path.parts[1]
    if folder in ROOMS and path.parts[2] not in ROOMS[folder]:
        return f"stands in none of the rooms of gyre/{folder}; add it to tools/check_layers.py and ARCHITECTURE.md"
    return None


def include_problem(path: Path, included: str, quoted: bool) -> str | None:
    """What is wrong with one #include of the file at `path`."""
    place = path.as_posix()
    if TORCH_HEADER.match(included) and not place.startswith(MAY_INCLUDE_TORCH):
        return "libtorch's headers are for gyre/models, gyre/train, workloads, bench, examples and tests only"
    target = Path(included)
    room = target.parts[0]
    if room != "gyre" and room not in OUTER_ROOMS:
        return "in quotes, but not a path from the root" if quoted else None
    if "internal" in target.parts:
        owner = Path(*target.parts[: target.parts.index("internal")])
        home = Path(OWN_TESTS.get(path.parent.as_posix(), path))
        if not home.is_relative_to(owner):
            return f"{owner}/internal is private to {owner}"
    if target.parts[:2] == ("workloads", "training") and path.parts[0] == "workloads":
        return None
    if room != "gyre":
        shared = 2 if room in ("apps", "workloads") else 1
        return None if path.parts[:shared] == target.parts[:shared] else f"{room} is included by nobody but itself"
    return level_problem(path, target)


def level_problem(path: Path, target: Path) -> str | None:
    """What is wrong with including gyre/FOLDER/... from where `path` stands."""
    folder = target.parts[1]
    if len(target.parts) < 3 or folder not in LEVELS:
        return f"gyre/{folder} is not a folder of the house"
    if path.parts[0] != "gyre":
        return None
    own = path.parts[1]
    if own == folder:
        return room_problem(path, target)
    if LEVELS[folder] > LEVELS[own]:
        return f"{own} (level {LEVELS[own]}) must not look up to {folder} (level {LEVELS[folder]})"
    if LEVELS[folder] == LEVELS[own]:
        return f"{own} and {folder} are siblings (level {LEVELS[own]}) that do not know each other"
    if folder in FORBIDDEN.get(own, ()):
        return f"{own} knows nothing of {folder}"
    return None


def room_problem(path: Path, target: Path) -> str | None:
    """What is wrong with including a file of the same folder of gyre/, which may be divided into rooms."""
    folder, own, other = path.parts[1], path.parts[2], target.parts[2]
    rooms = ROOMS.get(folder)
    if rooms is None:
        return None
    if other not in rooms:
        return f"gyre/{folder}/{other} is not a room of gyre/{folder}"
    return f"{folder}/{own} must not look up to {folder}/{other}" if rooms.index(other) > rooms.index(own) else None


def problems(root: Path) -> list[str]:
    """All violations under `root`, as FILE:LINE: message."""
    found = []
    graph: dict[str, set[str]] = {}
    for path in source_files(root, ".cc", ".h"):
        misplaced = folder_problem(path)
        if misplaced:
            found.append(f"{path}: {misplaced}")
            continue
        graph[path.as_posix()] = set()
        for line, included, quoted in includes((root / path).read_text(encoding="utf-8")):
            graph[path.as_posix()].add(included)
            problem = include_problem(path, included, quoted)
            if problem:
                found.append(f"{path}:{line}: {included}: {problem}")
    found += [f"a circle of includes: {' -> '.join(way)}" for way in circles(graph)]
    return found + python_layers.problems(root)


if __name__ == "__main__":
    sys.exit(report(problems))
