"""The imports of python/gyre: which module imports which, and what the levels of ARCHITECTURE.md say to that.

A room is a module or folder directly under python/gyre; "gyre" itself is the package's own `__init__`. Imports inside
functions count: they make a circle harder to see, not smaller. What stands under `if TYPE_CHECKING` does not run.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from circles import circles
from repository import source_files

PACKAGE = Path("python/gyre")
LEVELS = {
    "errors": 0,
    "core": 0,
    "_command_line": 0,
    "_step_record": 0,
    "_unfinished": 0,
    "_program_position": 0,
    "_operations": 0,
    "_runtime": 1,
    "jobs": 1,
    "_tensors": 1,
    "_torch_private": 1,
    "_devices": 2,
    "_gathering": 2,
    "_job": 2,
    "data": 2,
    "launch": 2,
    "_tensorflow": 3,
    "beeondutils": 3,
    "torch": 3,
    "gyre": 4,
    "keras": 4,
    "lightning": 4,
    "_registration": 4,
    "datasets": 4,
    "models": 4,
    "params": 4,
    "workers": 4,
    "cdsw": 5,
    "_keras_2": 5,
    "tensorflow": 5,
    "distributed": 5,
    "torch_backend": 6,
    "_horovod": 6,
    "bench": 6,
    "horovod": 7,
    "explain": 7,
    "doctor": 7,
    "config_command": 7,
    "completion": 8,
    "keras_2018": 8,
    "_cdsw_shim": 8,
    "_horovod_shim": 8,
    "_keras_2018_shim": 8,
}


def module_name(path: Path) -> str:
    """ "gyre.torch.state" for python/gyre/torch/state.py; a package's name for its `__init__`; a tool's own name."""
    inside = path.relative_to(path.parts[0]).with_suffix("")
    return ".".join(inside.parts[:-1] if inside.name == "__init__" else inside.parts)


def _running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for other in node.orelse:
            yield from _running_nodes(other)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _running_nodes(child)


def imports(source: str) -> Iterator[tuple[int, str, list[str]]]:
    """(line, module, names) of every import that can run, and of the plugins that a conftest.py has pytest import."""
    for node in _running_nodes(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.lineno, node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytest_plugins":
            yield from ((node.lineno, name, []) for name in ast.literal_eval(node.value))


def _targets(module: str, names: Iterable[str], known: set[str]) -> Iterator[str]:
    """The modules that one import statement asks for: each name that is one itself, else where it is taken from."""
    inside = [f"{module}.{name}" for name in names]
    yield from (name for name in inside if name in known)
    if module in known and not (inside and all(name in known for name in inside)):
        yield module


def _with_packages(target: str, importer: str) -> Iterator[str]:
    """Importing a.b.c runs a and a.b first, which are there already where the importer is inside of them."""
    yield target
    parts = target.split(".")
    for count in range(1, len(parts)):
        package = ".".join(parts[:count])
        if not f"{importer}.".startswith(f"{package}."):
            yield package


def graph(sources: dict[str, str]) -> dict[str, set[str]]:
    """By module name, what each imports of the others."""
    known = set(sources)
    return {
        name: {
            package
            for _, module, names in imports(source)
            for target in _targets(module, names, known)
            for package in _with_packages(target, name)
            if package in known and package != name
        }
        for name, source in sources.items()
    }


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def level_problems(path: Path, source: str, known: set[str]) -> Iterator[str]:
    """What is wrong with the imports of one file of python/gyre."""
    own = _room(module_name(path))
    if own not in LEVELS:
        yield f"{path}: python/gyre/{own} has no level; add it to tools/python_layers.py and ARCHITECTURE.md"
        return
    for line, module, names in imports(source):
        for target in _targets(module, names, known):
            other = _room(target)
            if other == own or other not in LEVELS:
                continue
            if LEVELS[other] > LEVELS[own]:
                yield f"{path}:{line}: {own} (level {LEVELS[own]}) must not look up to {other} (level {LEVELS[other]})"
            elif LEVELS[other] == LEVELS[own]:
                yield f"{path}:{line}: {own} and {other} are siblings (level {LEVELS[own]}) that do not know each other"


def problems(root: Path) -> list[str]:
    """All violations under `root`, and all circles of imports in python/ and tools/."""
    files = [path for path in source_files(root, ".py") if path.parts[0] in ("python", "tools")]
    sources = {path: (root / path).read_text(encoding="utf-8") for path in files}
    modules = {module_name(path): source for path, source in sources.items()}
    found: list[str] = []
    for path, source in sources.items():
        # A test may use whatever it tests with.
        if path.is_relative_to(PACKAGE) and not path.stem.endswith("_test"):
            found += level_problems(path, source, set(modules))
    found += [f"a circle of imports: {' -> '.join(way)}" for way in circles(graph(modules))]
    return found
