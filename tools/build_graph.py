"""What a build folder of Ninja knows of a change: which objects, libraries and programs it reaches.

The edges are those of build.ninja, and from the log of the last build the files that each object has read. Order-only
inputs are left out: they say what is built first, not what is read. A file that the log has not seen is read by nothing
yet, or by a file that has changed as well.
"""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from os.path import basename, normpath
from pathlib import Path

BUILD_LINE = re.compile(r"^build (?P<outputs>.*?[^$]): \S+(?P<inputs>.*)$")
ADD_TEST = re.compile(r"^add_test\(\[=\[(?P<room>[^.\]]+)\..*?\]=\] (?P<command>.*)\)$", re.MULTILINE)
INCLUDED_TESTS = re.compile(r"gyre_(?P<room>\w+)_test\[\d+\]_include\.cmake")


def closure(start: Iterable[str], users: dict[str, set[str]]) -> set[str]:
    """The start and all that uses it, directly or not."""
    reached = set(start)
    due = list(reached)
    while due:
        new = users.get(due.pop(), set()) - reached
        reached |= new
        due += new
    return reached


def _paths(text: str) -> list[str]:
    """The paths of one part of a build line, without Ninja's escapes."""
    return [re.sub(r"\$(.)", r"\1", path) for path in re.findall(r"(?:\$.|[^\s$])+", text) if path != "|"]


class BuildGraph:
    """Of one build folder of a checkout; its files are named from the root of the checkout."""

    def __init__(self, root: Path, build: Path) -> None:
        self._root = root
        self._build = build
        self._names: dict[str, str] = {}

    def exists(self) -> bool:
        """Whether there is a finished build of this checkout to ask."""
        return (self._build / ".ninja_deps").is_file() and any(path.endswith(".o") for path in self.users)

    def name(self, path: str) -> str:
        """Of a file that Ninja names from its folder."""
        if path not in self._names:
            self._names[path] = normpath(f"{self._build}/{path}" if not path.startswith("/") else path)
            self._names[path] = self._names[path].removeprefix(f"{self._root}/")
        return self._names[path]

    def target(self, path: str) -> str:
        """How to ask Ninja for a file that it builds: by its path in the build folder, or else by its name alone."""
        inside = f"{self._build.relative_to(self._root)}/"
        return path.removeprefix(inside) if path.startswith(inside) else basename(path)

    @cached_property
    def users(self) -> dict[str, set[str]]:
        """By file, what is made of it."""
        found: dict[str, set[str]] = defaultdict(set)
        for line in (self._build / "build.ninja").read_text(encoding="utf-8").replace("$\n", "").splitlines():
            match = BUILD_LINE.match(line)
            if match is None:
                continue
            outputs = {self.name(path) for path in _paths(match["outputs"])}
            # A phony target of CMake's (`all`) is made of everything and used by nothing.
            for path in _paths(match["inputs"].split(" || ")[0]):
                found[self.name(path)] |= outputs
        for output, inputs in self._logged():
            for path in inputs:
                found[self.name(path)].add(self.name(output))
        return found

    def _logged(self) -> Iterable[tuple[str, list[str]]]:
        listing = subprocess.run(
            ["ninja", "-C", str(self._build), "-t", "deps"], capture_output=True, text=True, check=True
        ).stdout
        for entry in listing.split("\n\n"):
            head, *inputs = entry.strip().splitlines() or [""]
            if ": #deps" in head:
                yield (
                    head.split(": #deps")[0],
                    [line.strip() for line in inputs if not line.lstrip().startswith("/usr/")],
                )

    def below(self, folder: str) -> set[str]:
        """All that is built in the folder of a CMakeLists.txt."""
        prefix = self.name(folder) + "/"
        outputs = set().union(*self.users.values()) if self.users else set()
        return {output for output in outputs if output.startswith(prefix)}

    def reached(self, files: Iterable[str]) -> set[str]:
        return closure(files, self.users)

    @cached_property
    def test_rooms(self) -> dict[str, set[str]]:
        """By program, the rooms of the C++ tests that run it: what stands before the point in their names."""
        found: dict[str, set[str]] = defaultdict(set)
        for file in self._build.rglob("CTestTestfile.cmake"):
            text = file.read_text(encoding="utf-8")
            for match in INCLUDED_TESTS.finditer(text):
                found[self.name(str(file.parent / f"gyre_{match['room']}_test"))].add(match["room"])
            for match in ADD_TEST.finditer(text):
                for word in re.findall(r'"([^"]+)"', match["command"]):
                    if word.startswith("/"):
                        found[self.name(word)].add(match["room"])
        return found

    @cached_property
    def results(self) -> dict[str, str]:
        """By name, the programs, modules and libraries that are linked; not the objects and archives in them."""
        made = set().union(*self.users.values()) if self.users else set()
        linked = {path for path in made if path in self._linked}
        return {basename(path): path for path in sorted(linked)}

    @cached_property
    def _linked(self) -> set[str]:
        text = (self._build / "build.ninja").read_text(encoding="utf-8").replace("$\n", "")
        lines = re.findall(
            r"^build (.*?[^$]): CXX_(?:EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY)_LINKER", text, re.MULTILINE
        )
        return {self.name(_paths(line)[0]) for line in lines}
