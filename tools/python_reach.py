"""Which files of the repository a Python test can read, as far as its text tells.

Imports are followed through the package, the tools and the tests' support, wherever they stand in a file. What a test
or a support module names in its text counts too: a module (`python -m gyre.bench`), a file by its name, a folder by its
path. A fixture counts for the tests that ask for it. All of that errs on the side of more.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from python_layers import imports

PACKAGE = "python/gyre/"
# Where a file's imports are looked for, besides its own folder: pyproject.toml's pythonpath, and what the package adds.
IMPORT_ROOTS = ("python", "tools", "tests/support", "bench", "python/gyre/_horovod_shim", "python/gyre/_cdsw_shim")
# What Python loads by itself with a package of others: pyproject.toml's entry points.
ENTRY_POINTS = {"torch": "gyre.torch_backend"}
# Names that say nothing without their folder.
COMMON_NAMES = ("__init__.py", "__main__.py", "conftest.py", "CMakeLists.txt", "README.md", "main.cc", "gyre")
CPP = (".cc", ".h", ".fbs")
DOTTED = re.compile(r"\bgyre(?:\.\w+)+")
WORD = re.compile(r"\w+")
FILE_NAME = re.compile(r"[\w.-]+")
# `ROOT / "docs"`, but no other "docs".
TOP_FOLDER = re.compile(r"""\b[A-Z]\w*\s*/\s*["']([\w.-]+)["'](?!\s*/)""")
QUOTED_WORD = re.compile(r"""["']([\w-]+)["']""")
MADE_NAME = re.compile(r"""f["'](gyre\.[\w.]*\.)\{""")
ASSIGNED = re.compile(r"^(\w+)(?:: [^=\n]+)? = ", re.MULTILINE)
LISTS_FOLDERS = re.compile(r"\.r?glob\(|ls-files")
JOINED = re.compile(r"""["']\s*/\s*f?["']""")
GYRE_VERB = re.compile(r"\bgyre [a-z]")


def _names_folder(text: str, folder: str) -> bool:
    return folder in text and re.search(rf"(?<!\w){re.escape(folder)}(?![\w/.-])", text) is not None


def _parameters(text: str) -> set[str]:
    """Of all functions in a file; those of tests are fixtures."""
    return {node.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arg)}


def is_test(path: str) -> bool:
    return path.endswith("_test.py")


@dataclass
class Uses:
    """What one piece of Python text reads: other files of the repository, and programs by their names."""

    files: set[str] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)  # All of whose files it may read.

    def add(self, other: "Uses") -> None:
        self.files |= other.files
        self.programs |= other.programs
        self.folders |= other.folders

    def names_folder_of(self, path: str) -> bool:
        return any(path.startswith(f"{folder}/") for folder in self.folders)


class Sources:
    """The repository's files, and what a piece of text can mean among them. `gone`: files that were there before the
    change; who names them is still found. `programs`: names of what the build links."""

    def __init__(self, root: Path, paths: Iterable[str], gone: Iterable[str], programs: Iterable[str]) -> None:
        self._root = root
        self.paths = sorted(set(paths))
        self._known = {*self.paths, *gone}
        self._programs = set(programs)
        self._texts: dict[str, str] = {}

    def text(self, path: str) -> str:
        if path not in self._texts:
            file = self._root / path
            self._texts[path] = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        return self._texts[path]

    @cached_property
    def _modules(self) -> dict[str, set[str]]:
        """By name, the files of a module: more than one where two roots have it."""
        found: dict[str, set[str]] = defaultdict(set)
        for path in self._known:
            for root in IMPORT_ROOTS:
                if path.endswith(".py") and path.startswith(f"{root}/"):
                    parts = PurePosixPath(path.removeprefix(f"{root}/")).with_suffix("").parts
                    found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)].add(path)
        return found

    def module_files(self, name: str) -> set[str]:
        """The files that run where a module, or something within it, is imported."""
        parts = name.split(".")
        return set().union(*(self._modules.get(".".join(parts[:count]), set()) for count in range(1, len(parts) + 1)))

    def imported(self, path: str) -> set[str]:
        folder = str(PurePosixPath(path).parent)
        found: set[str] = set()
        for _, module, names in imports(self.text(path)):
            for name in (module, *(f"{module}.{name}" for name in names)):
                found |= self.module_files(name)
            neighbour = f"{folder}/{module.replace('.', '/')}.py"
            found |= {neighbour} & self._known
        return found | self._started(self.text(path))

    def _started(self, text: str) -> set[str]:
        """What runs without a statement of its own: modules whose names are put together, entry points of packages."""
        parts = [prefix for prefix in MADE_NAME.findall(text) if prefix.count(".") > 1]
        found = {file for name, files in self._modules.items() if name.startswith(tuple(parts)) for file in files}
        for package, module in ENTRY_POINTS.items():
            if re.search(rf"""\b(?:import|from) {package}\b|["']{package}["']""", text):
                found |= self.module_files(module)
        return found

    @cached_property
    def _by_name(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for path in self._known:
            name = PurePosixPath(path).name
            if name not in COMMON_NAMES:
                found[name].add(path)
        return found

    @cached_property
    def _folders(self) -> set[str]:
        return {str(parent) for path in self._known for parent in PurePosixPath(path).parents} - {"."}

    @cached_property
    def _top(self) -> set[str]:
        return {folder for folder in self._folders if "/" not in folder}

    def named(self, text: str) -> Uses:
        """What a text names, in code or in words."""
        folders = set(TOP_FOLDER.findall(text))
        text = JOINED.sub("/", text)
        quoted = set(QUOTED_WORD.findall(text))
        if LISTS_FOLDERS.search(text):
            folders |= self._top if "ls-files" in text else self._top & quoted
        found = Uses(folders & self._known, self._programs & (set(FILE_NAME.findall(text)) - {"gyre"}))
        for name in set(DOTTED.findall(text)):
            found.files |= self.module_files(name)
        if "gyre" in quoted or GYRE_VERB.search(text):
            found.programs |= self._programs & {"gyre"}
            # `gyre bench` runs gyre.bench, and so on.
            found.files |= set().union(*(self.module_files(f"gyre.{verb}") for verb in quoted))
        for name in set(FILE_NAME.findall(text)) & self._by_name.keys():
            found.files |= self._by_name[name]
        found.files |= self._started(text)
        for folder in self._folders:
            if folder in folders or ("/" in folder and _names_folder(text, folder)):
                found.folders.add(folder)
                found.files |= {
                    path for path in self._known if path.startswith(f"{folder}/") and not path.endswith(CPP)
                }
        return found


class PythonReach:
    """For each Python test file: what it reads, and the programs that it runs."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._named: dict[str, Uses] = {}
        self._imported: dict[str, set[str]] = {}
        self._function_texts: dict[str, dict[str, str]] = {}

    def _imports(self, path: str) -> set[str]:
        if path not in self._imported:
            self._imported[path] = self._sources.imported(path) if path.endswith(".py") else set()
        return self._imported[path]

    def import_closure(self, start: Iterable[str]) -> set[str]:
        reached = set(start)
        due = list(reached)
        while due:
            new = self._imports(due.pop()) - reached
            reached |= new
            due += new
        return reached

    def _conftests(self, test: str) -> list[str]:
        parents = (str(parent / "conftest.py") for parent in PurePosixPath(test).parents)
        return [path for path in parents if path in self._sources.paths]

    def _fixtures(self, test: str) -> Iterator[tuple[str, set[str]]]:
        """Every function of the conftests, and of the modules with fixtures, that the test asks for, or that such a
        function names: its text, and the modules that it may take names from."""
        functions: dict[str, tuple[str, set[str]]] = {}
        for conftest in self._conftests(test):
            for path in (conftest, *self._imports(conftest)):
                if path.startswith("tests/"):
                    modules = self._imports(path) | ({path} - {conftest})
                    functions |= {name: (text, modules) for name, text in self._functions(path).items()}
        text = self._sources.text(test)
        due = [_parameters(text) | set(QUOTED_WORD.findall(text))]
        while due:
            for name in due.pop() & functions.keys():
                fixture, modules = functions.pop(name)
                words = set(WORD.findall(fixture))
                due.append(words)
                yield fixture, {path for path in modules if words & self._defined(path)}

    def _defined(self, path: str) -> set[str]:
        """The names that a file defines."""
        assigned = ASSIGNED.findall(self._sources.text(path))
        return {*self._functions(path), *assigned}

    def _functions(self, path: str) -> dict[str, str]:
        """By name, the text of every function and class of a file."""
        if path not in self._function_texts:
            text = self._sources.text(path)
            self._function_texts[path] = {
                node.name: ast.get_source_segment(text, node) or ""
                for node in ast.parse(text).body
                if isinstance(node, ast.FunctionDef | ast.ClassDef)
            }
        return self._function_texts[path]

    def uses(self, test: str) -> Uses:
        """All that a test file reads: its own text, its imports and fixtures, and what those name, run and import."""
        found = Uses(files={test})
        due = self.import_closure([test])
        for fixture, modules in self._fixtures(test):
            found.add(self._sources.named(fixture))
            due |= modules
        due |= found.files
        seen: set[str] = set()
        followed = {test}
        while due:
            reached = self.import_closure(due)
            found.files |= reached
            due = set()
            for path in reached - seen:
                # A test may run another one that it names. A tool that names one only speaks of it.
                if is_test(path) and path not in followed:
                    continue
                named = self._text_uses(path)
                if path == test:
                    followed |= {path for path in named.files if not named.names_folder_of(path)}
                found.programs |= named.programs
                found.folders |= named.folders
                due |= named.files - found.files
            seen |= reached
        for conftest in self._conftests(test):
            found.files |= self.import_closure([conftest])
        return found

    def _text_uses(self, path: str) -> Uses:
        """What a file names. Only the texts of tests, tools and programs are read: the package imports what it uses,
        and speaks of much else in its comments."""
        if path not in self._named:
            readable = path.endswith((".py", ".sh")) and not (path.startswith(PACKAGE) and not is_test(path))
            self._named[path] = self._sources.named(self._sources.text(path)) if readable else Uses()
        return self._named[path]
