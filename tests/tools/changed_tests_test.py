"""`./dev test --changed` leaves out no test that the change could fail, and says which it leaves to --far."""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from build_graph import BuildGraph
from changed_tests import Choice, Chooser, changed_since, default_base, with_far, witnesses_of

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
WITNESSES = (ROOT / "tools" / "python_witnesses.txt").read_text(encoding="utf-8")

# Programs made with cat, whose inputs come from a log of dependencies as a compiler's do.
NINJA = """
rule CXX_COMPILER__x
  command = cat $in > $out && echo "$out: $in $header" > $out.d
  depfile = $out.d
  deps = gcc
rule CXX_STATIC_LIBRARY_LINKER__x
  command = cat $in > $out
rule CXX_EXECUTABLE_LINKER__x
  command = cat $in > $out
build gyre/base/base.cc.o: CXX_COMPILER__x ../../gyre/base/base.cc
  header = ../../gyre/base/base.h
build gyre/base/libbase.a: CXX_STATIC_LIBRARY_LINKER__x gyre/base/base.cc.o
build gyre/base/base_test.cc.o: CXX_COMPILER__x ../../gyre/base/base_test.cc
  header = ../../gyre/base/base.h
build gyre/base/gyre_base_test: CXX_EXECUTABLE_LINKER__x gyre/base/base_test.cc.o | gyre/base/libbase.a
build gyre/net/net_test.cc.o: CXX_COMPILER__x ../../gyre/net/net_test.cc
  header = ../../gyre/net/net.h
build gyre/net/gyre_net_test: CXX_EXECUTABLE_LINKER__x gyre/net/net_test.cc.o || gyre/base/libbase.a
build bin/gyre: CXX_EXECUTABLE_LINKER__x gyre/base/libbase.a
"""
FILES = {
    "gyre/base/base.h": "",
    "gyre/base/base.cc": "",
    "gyre/base/base_test.cc": "",
    "gyre/base/CMakeLists.txt": "",
    "gyre/net/net.h": "",
    "gyre/net/net_test.cc": "",
    "python/gyre/__init__.py": "",
    "python/gyre/errors.py": "",
    "python/gyre/torch/__init__.py": "from gyre.torch import ring\n",
    "python/gyre/torch/ring.py": "from gyre.errors import Error\n",
    "tests/conftest.py": "import helper\n\ndef gyre():\n    return which('gyre')\n\ndef job(gyre):\n    return gyre\n",
    "tests/support/helper.py": "",
    "tests/support/script.py": "import gyre.errors\n",
    "tests/data/numbers.txt": "",
    "tests/python/ring_test.py": "import gyre.torch\n",
    "tests/python/errors_test.py": 'run("script.py")\n',
    "tests/python/data_test.py": 'DATA = ROOT / "tests" / "data"\n',
    "tests/e2e/job_test.py": "def test_it(job): pass\n",
    "tests/e2e/base_test.py": "def test_it(job): pass\n",
    "tests/e2e/guide_test.py": 'read("docs/guide/jobs.md")\n',
    "docs/guide/jobs.md": "",
    "docs/other.md": "",
    "tools/python_witnesses.txt": "gyre/base tests/e2e/base_test.py\n",
}


@pytest.fixture
def choose(repository: Path, plant: Callable[[str, str], None], commit: Callable[[], None]) -> Callable[..., Choice]:
    for path, text in {**FILES, ".gitignore": "build\n"}.items():
        plant(path, text)
    plant("build/release/build.ninja", NINJA)
    for room in ("base", "net"):
        plant(f"build/release/gyre/{room}/CTestTestfile.cmake", f'include("x/gyre_{room}_test[1]_include.cmake")\n')
        (repository / f"gyre/{room}").mkdir(exist_ok=True)
    commit()
    build = repository / "build" / "release"
    subprocess.run(["ninja", "-C", str(build)], check=True, stdout=subprocess.DEVNULL)

    def run(*changed: str) -> Choice:
        return Chooser(repository, BuildGraph(repository, build), changed).choose(changed)

    return run


@pytest.mark.parametrize(
    ("changed", "rooms", "paths", "far"),
    [
        ("gyre/base/base.cc", {"base"}, {"tests/e2e/base_test.py"}, {"tests/e2e/job_test.py"}),
        ("gyre/base/base.h", {"base"}, {"tests/e2e/base_test.py"}, {"tests/e2e/job_test.py"}),
        ("gyre/base/CMakeLists.txt", {"base"}, {"tests/e2e/base_test.py"}, {"tests/e2e/job_test.py"}),
        ("gyre/base/base_test.cc", {"base"}, set(), set()),
        ("gyre/net/net.h", {"net"}, set(), set()),
        ("python/gyre/torch/ring.py", set(), {"tests/python/ring_test.py"}, set()),
        ("python/gyre/errors.py", set(), {"tests/python/ring_test.py", "tests/python/errors_test.py"}, set()),
        ("tests/support/script.py", set(), {"tests/python/errors_test.py"}, set()),
        ("tests/data/numbers.txt", set(), {"tests/python/data_test.py"}, set()),
        ("tests/e2e/job_test.py", set(), {"tests/e2e/job_test.py"}, set()),
        ("docs/guide/jobs.md", set(), {"tests/e2e/guide_test.py"}, set()),
        ("docs/other.md", set(), set(), set()),
        ("tests/support/helper.py", set(), {path for path in FILES if path.endswith("_test.py")}, set()),
    ],
)
def test_a_change_reaches_what_reads_it(
    choose: Callable[..., Choice], changed: str, rooms: set[str], paths: set[str], far: set[str]
) -> None:
    choice = choose(changed)
    assert (choice.rooms, choice.paths, set(choice.far), choice.everything) == (rooms, paths, far, "")
    assert with_far(choice).paths == paths | far


@pytest.mark.parametrize("changed", ["CMakeLists.txt", "cmake/GyreTargets.cmake", "pyproject.toml", "strange/file.bin"])
def test_what_fits_no_rule_runs_everything_and_says_so(choose: Callable[..., Choice], changed: str) -> None:
    assert changed in choose(changed).everything


def test_python_tests_run_with_all_programs_built(choose: Callable[..., Choice]) -> None:
    assert choose("gyre/base/base.cc").targets == {"gyre/base/gyre_base_test", "bin/gyre"}
    assert choose("gyre/net/net.h").targets == {"gyre/net/gyre_net_test"}


def test_without_a_build_a_change_of_cpp_runs_everything(repository: Path, choose: Callable[..., Choice]) -> None:
    (repository / "build/release/.ninja_deps").unlink()
    assert "nothing has been built" in choose("gyre/base/base.cc").everything
    assert choose("docs/other.md").everything == ""


def test_changes_are_those_since_a_commit_and_both_names_of_a_move(
    repository: Path, choose: Callable[..., Choice]
) -> None:
    del choose
    assert changed_since(repository, default_base(repository)) == []
    (repository / "docs/other.md").rename(repository / "docs/moved.md")
    assert default_base(repository) == "HEAD"
    assert changed_since(repository, "HEAD") == ["docs/moved.md", "docs/other.md"]
    with pytest.raises(SystemExit, match="nowhere"):
        changed_since(repository, "nowhere")


def test_the_longest_folder_has_the_witnesses() -> None:
    table = "# a table\ngyre/jobs a b\ngyre/jobs/http c\n"
    assert witnesses_of(table, "gyre/jobs/http/x.cc") == ["c"]
    assert witnesses_of(table, "gyre/jobs/x.cc") == ["a", "b"]
    assert witnesses_of(table, "gyre/job.cc") == []


def tracked() -> list[str]:
    return subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_every_folder_with_cpp_has_witnesses_that_exist() -> None:
    for line in WITNESSES.splitlines():
        for pattern in [] if line.startswith("#") else line.split()[1:]:
            assert list(ROOT.glob(pattern)), f"{pattern} fits no test file"
    product = [
        path
        for path in tracked()
        if path.endswith(".cc") and path.startswith(("gyre/", "apps/", "workloads/", "python/"))
    ]
    assert [path for path in product if not witnesses_of(WITNESSES, path)] == []


# Short, and of different kinds: fixtures and programs, data, scripts, the package, tools that read the repository.
WATCHED = [
    "tests/e2e/exit_code_test.py",
    "tests/e2e/job_validate_test.py",
    "tests/e2e/program_options_test.py",
    "tests/python/image_kinds_test.py",
    "tests/python/settings_test.py",
    "tests/python/threads_test.py",
    "tests/security/key_memory_test.py",
    "tests/tools/bench_report_test.py",
    "tests/tools/check_sizes_test.py",
    "tests/tools/guides_test.py",
    "tests/tools/needs_root_test.py",
    "tests/tools/tally_test.py",
]


def files_opened_by(test: str, folder: Path) -> set[str]:
    """The files of the repository and of its build that a test's processes open or execute, as the kernel sees it."""
    log = folder / "opened"
    command = ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=open,openat,execve", "-o", str(log)]
    command += [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", test]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert result.returncode == 0, result.stdout
    found = set()
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        match = re.search(r'(?:open\(|openat\(\w+, |execve\()"([^"]+)".* = \d+$', line)
        path = os.path.normpath(ROOT / match[1]) if match else ""
        if path.startswith(f"{ROOT}/"):
            name = path.removeprefix(f"{ROOT}/")
            found.add(re.sub(r"__pycache__/([^/]+)\.cpython-\d+(?:-pytest-[\d.]+)?\.pyc(?:\.\d+)?$", r"\1.py", name))
    return found


@pytest.mark.needs_programs("strace")
def test_what_a_test_opens_is_in_what_reaches_it(tmp_path: Path) -> None:
    """Independent of how the choice is made: the kernel says what a test has read. Each such file, and some sources of
    each program that the test has run, must choose the test, or name it among those left out."""
    seed = int(os.environ.get("GYRE_TEST_SEED", "1"))
    chance = random.Random(seed)
    graph = BuildGraph(ROOT, BUILD)
    assert graph.exists()
    chooser = Chooser(ROOT, graph)
    files = set(tracked())
    makers: dict[str, set[str]] = {}
    for source in (path for path in files if path.endswith(".cc")):
        for made in graph.reached([source]):
            makers.setdefault(made, set()).add(source)
    for test in chance.sample(WATCHED, 2):
        opened = files_opened_by(test, tmp_path)
        assert test in opened
        sources = opened & files
        for name in opened - files:
            made = sorted(makers.get(name, ()))
            sources |= set(chance.sample(made, min(2, len(made))))
        for source in sorted(sources):
            if Path(source).name == "__init__.py" and (ROOT / source).stat().st_size == 0:
                continue
            choice = chooser.choose([source])
            chosen = with_far(choice).paths
            reached = choice.everything or any(test == path or test.startswith(f"{path}/") for path in chosen)
            assert reached, (
                f"seed {seed}: {test} reads {source}, whose change does not reach it: {json.dumps(sorted(chosen))}"
            )
