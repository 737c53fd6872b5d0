"""Which tests a change can reach: for `./dev test --changed [BASE] [--far]`.

Prints three lines, a word and its values each: `rooms` of C++ tests, `targets` of the build and `paths` of Python
tests. Or else `everything`. On standard error it says what was left out, and why.

A C++ file reaches the programs that Ninja links from it, so their C++ tests, and the Python tests that run one of them
or load the extension module. Nearly every Python test does. So for a change of C++ only the witnesses of its folder run
(python_witnesses.txt), and for a change in gyre/ not the C++ tests of the training programs in workloads/; --far runs
all of them. A Python file, a file of data, a script or a page reaches the Python tests that import it or name it. A
file that fits no rule runs everything of its room, or of the repository.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

from build_graph import BuildGraph
from python_reach import CPP, PACKAGE, PythonReach, Sources, Uses, is_test
from repository import ROOT, base_commit, git

RUN_A_PROGRAM = "Python tests that run a program"
# Names the modules that `gyre VERB` runs.
VERBS = "apps/gyre/main.cc"
WITNESSES = Path("tools/python_witnesses.txt")
# A change of one of these can do anything to any test.
OF_EVERYTHING = (
    "CMakeLists.txt",
    "CMakePresets.json",
    "cmake/",
    "pyproject.toml",
    "requirements.txt",
    "tests/requirements.txt",
)
# Nothing runs these, and tests that read them name them.
READ_BY_NAME = (
    "docs/",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "LICENSE",
    "SECURITY.md",
    ".github/",
)
BUILT_FROM = ("gyre/", "apps/", "workloads/", "examples/", "bench/", "fuzz/", "tests/", "python/")


@dataclass
class Choice:
    """What is to run. `everything`: why all tests are, if so; `far`: what is reached and left out, with the reason."""

    rooms: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    everything: str = ""
    far: dict[str, str] = field(default_factory=dict)


def changed_since(root: Path, base: str) -> list[str]:
    """Files that differ from a commit, or are not in git yet; both names of one that has moved."""
    changed = git(root, "diff", "--name-only", "--no-renames", base)
    if changed is None:
        raise SystemExit(f"'{base}' is not a commit of this repository; ./dev test --changed HEAD~3")
    untracked = git(root, "ls-files", "--others", "--exclude-standard") or ""
    return sorted({*changed.splitlines(), *untracked.splitlines()})


def default_base(root: Path) -> str:
    """Where this branch left main. On main itself the last commit if anything differs from it, else the one before."""
    base = base_commit(root) or "HEAD"
    on_main = base == (git(root, "rev-parse", "HEAD~1") or "").strip()
    return "HEAD" if on_main and changed_since(root, "HEAD") else base


def witnesses_of(text: str, path: str) -> list[str]:
    """The patterns of the longest folder that holds the path."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    fitting = [line for line in lines if path.startswith(f"{line[0]}/")]
    return max(fitting, key=lambda line: len(line[0]))[1:] if fitting else []


class Chooser:
    """Chooses among the tests of a checkout. `changed`: files that may be gone, and that tests may still name."""

    def __init__(self, root: Path, graph: BuildGraph, changed: Iterable[str] = ()) -> None:
        self._graph = graph
        listing = git(root, "ls-files", "--cached", "--others", "--exclude-standard") or ""
        self._paths = [path for path in listing.splitlines() if (root / path).is_file()]
        programs = graph.results if graph.exists() else {}
        self._sources = Sources(root, self._paths, changed, programs)
        self._reach = PythonReach(self._sources)

    @cached_property
    def _tests(self) -> dict[str, Uses]:
        """All Python test files, with what they use."""
        return {path: self._reach.uses(path) for path in self._paths if is_test(path)}

    @cached_property
    def _run_by_program(self) -> set[str]:
        """The package's files that `gyre VERB` runs, for whichever verb."""
        return self._reach.import_closure(self._sources.named(self._sources.text(VERBS)).files)

    def choose(self, changed: Iterable[str]) -> Choice:
        choice = Choice()
        changed = sorted(changed)
        for path in changed:
            if path.startswith(OF_EVERYTHING):
                choice.everything = f"{path} can change every test"
                return choice
        if any(path.endswith((*CPP, "CMakeLists.txt")) for path in changed) and not self._graph.exists():
            choice.everything = "nothing has been built, so nothing is known of what C++ files reach"
            return choice
        reached: set[str] = set()
        for path in changed:
            self._add_python(path, choice)
            if path.endswith((*CPP, "CMakeLists.txt")):
                reached |= self._add_cpp(path, choice)
            if choice.everything:
                return choice
        self._add_witnesses(changed, reached, choice)
        if choice.paths:
            choice.targets |= self._all_but_tests()
        choice.far = {test: why for test, why in choice.far.items() if test not in choice.paths | choice.rooms}
        return choice

    def _add_python(self, path: str, choice: Choice) -> None:
        """The Python tests that read the file."""
        if is_test(path) and path in self._paths:
            choice.paths.add(path)
        readers = {test for test, uses in self._tests.items() if path in uses.files}
        choice.paths |= readers
        if path in self._run_by_program:
            choice.far |= {test: RUN_A_PROGRAM for test, uses in self._tests.items() if "gyre" in uses.programs}
        if path.endswith(CPP):
            names_folder = {test for test, uses in self._tests.items() if uses.names_folder_of(path)}
            choice.far |= dict.fromkeys(names_folder, "Python tests that read or build a whole folder")
        if readers or is_test(path) or path.endswith((*CPP, "CMakeLists.txt")) or path.startswith(READ_BY_NAME):
            return
        if path.startswith(PACKAGE):
            choice.paths |= {"tests/python", "tests/tensorflow"}
        elif path.startswith("tools/"):
            choice.paths.add("tests/tools")
        elif path.startswith("tests/") and path.count("/") > 1 and "/support/" not in path and "/data/" not in path:
            choice.paths.add("/".join(path.split("/")[:2]))
        elif not path.startswith("bench/"):
            choice.everything = f"nothing is known of what {path} reaches"

    def _add_cpp(self, path: str, choice: Choice) -> set[str]:
        """The C++ tests that a file reaches, and what is linked from it."""
        start = {path}
        if path.endswith("CMakeLists.txt") or path not in self._graph.users:
            # A new or unused file: all that its folder builds, so that nothing is missed.
            start |= self._graph.below(str(Path(path).parent))
        reached = self._graph.reached(start)
        rooms = {program: names for program, names in self._graph.test_rooms.items() if program in reached}
        for program, names in rooms.items():
            if program.startswith("build/release/workloads/") and path.startswith("gyre/"):
                choice.far |= dict.fromkeys(names, "C++ tests of training programs")
                continue
            choice.rooms |= names
            choice.targets.add(self._graph.target(program))
        return reached

    def _all_but_tests(self) -> set[str]:
        """What Python tests may run or load: all that is linked, but for the C++ tests. What is fresh costs nothing."""
        linked = self._graph.results.items() if self._graph.exists() else ()
        return {self._graph.target(path) for name, path in linked if not name.endswith("_test")}

    def _add_witnesses(self, changed: list[str], reached: set[str], choice: Choice) -> None:
        """Of the Python tests that run or load what is linked from a changed file: the witnesses of its folder. The
        rest is far."""
        results = self._graph.results.items() if reached else ()
        linked = {name: path for name, path in results if path in reached and not name.endswith("_test")}
        if not linked:
            return
        modules = {str(Path(path).parent) for path in linked.values() if path.startswith("python/")}
        for test, uses in self._tests.items():
            programs = uses.programs & linked.keys()
            if programs:
                choice.far[test] = RUN_A_PROGRAM
            elif any(str(Path(path).parent) in modules for path in uses.files):
                choice.far[test] = "Python tests through the extension module"
        table = self._sources.text(str(WITNESSES))
        for path in changed:
            for pattern in witnesses_of(table, path):
                choice.paths |= {test for test in self._tests if fnmatch(test, pattern)}


def with_far(choice: Choice) -> Choice:
    """The choice with all that it had left out."""
    tests = {name for name in choice.far if "/" in name}
    rooms = choice.far.keys() - tests
    targets = {f"gyre_{room}_test" for room in rooms}
    return Choice(choice.rooms | rooms, choice.targets | targets, choice.paths | tests, choice.everything)


def tell(choice: Choice, changed: list[str], base: str) -> None:
    """What was chosen and what was left out, for the person who waits."""

    def say(text: str) -> None:
        print(f"dev: {text}", file=sys.stderr)

    say(f"{len(changed)} files differ from {base}: {' '.join(changed[:6])}{' …' if len(changed) > 6 else ''}")
    if choice.everything:
        say(f"all tests run: {choice.everything}")
        return
    say(f"C++ tests: {' '.join(sorted(choice.rooms)) or 'none'}")
    say(f"Python tests: {' '.join(sorted(choice.paths)) or 'none'}")
    for reason in sorted(set(choice.far.values())):
        tests = sorted(test for test, why in choice.far.items() if why == reason)
        say(f"left out, {len(tests)} {reason} (--far runs them): {' '.join(tests)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", nargs="?", help="the commit to compare with")
    parser.add_argument("--far", action="store_true", help="with the tests that are reached only through programs")
    options = parser.parse_args()
    base = options.base or default_base(ROOT)
    changed = changed_since(ROOT, base)
    try:
        choice = Chooser(ROOT, BuildGraph(ROOT, ROOT / "build" / "release"), changed).choose(changed)
    except SyntaxError as error:
        choice = Choice(everything=f"a Python file does not parse, so its imports are not known: {error}")
    if options.far:
        choice = with_far(choice)
    tell(choice, changed, base)
    if choice.everything:
        print("everything")
        return 0
    for name, values in (("rooms", choice.rooms), ("targets", choice.targets), ("paths", choice.paths)):
        print(name, *sorted(values))
    return 0


if __name__ == "__main__":
    sys.exit(main())
