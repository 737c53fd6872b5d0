"""C++ programs of others build with Gyre from an empty folder in every way that docs/guide/cpp.md names.

CMake files and commands are the guide's, the programs the README's and examples/03_libtorch.cc. The wheel's part is in
wheel_test.py. What is compiled comes out of ccache after the first time: its folder has a fixed name.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from outside_programs import (
    GUIDE,
    LIBTORCH_PROGRAM,
    README_PROGRAM,
    ROOT,
    build_with_cmake,
    fitted_the_same,
    output_of,
    write,
)
from running_job import StartJob

BUILD = ROOT / "build" / "release"
PACKAGE, SUBDIRECTORY = re.findall(r"```cmake\n(.*?)```", GUIDE, re.DOTALL)
(PKG_CONFIG,) = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
NETWORK_PROGRAM = re.findall(r"```cpp\n(#include <gyre/models/.*?)```", GUIDE, re.DOTALL)[0]
AVERAGE = "add_executable(average average.cc)\ntarget_link_libraries(average PRIVATE gyre::gyre)\n"
NETWORK = "add_executable(network network.cc)\ntarget_link_libraries(network PRIVATE gyre::models)\n"
# What the compiler may read beside our headers: the standard library's, the system's and its own.
SYSTEM_HEADERS = re.compile(
    r"/usr/lib/gcc|/usr/include/(c\+\+|linux|asm-generic|[a-z0-9_]+-linux-gnu)/|/usr/include/[a-z0-9_-]+\.h$"
)
# Folders of gyre/ whose static library has nothing but what libgyre is made of.
IN_LIBGYRE = ("base", "metrics", "net", "group", "collectives", "engine", "params")


@pytest.fixture(scope="module")
def fixed_folder() -> Iterator[Path]:
    """Empty, and called the same each time."""
    folder = ROOT / "build" / "outside"
    shutil.rmtree(folder, ignore_errors=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def prefix(fixed_folder: Path) -> Path:
    folder = fixed_folder / "prefix"
    output_of(["cmake", "--install", str(BUILD), "--prefix", str(folder)], ROOT)
    return folder


def runs_on_two_ranks(start_job: StartJob, program: Path) -> str:
    job = start_job("-n", "2", "--", str(program), env={"OMP_NUM_THREADS": "1"}, timeout=120)
    assert job.wait() == 0, job.stderr
    return job.stdout


def averages_on_two_ranks(start_job: StartJob, program: Path) -> None:
    """Who built the README's program must see that it worked."""
    lines = sorted(runs_on_two_ranks(start_job, program).splitlines())
    assert lines == [f"[{rank}] rank {rank} of 2 has the average 0.5" for rank in (0, 1)]


def test_both_programs_build_with_gyre_as_a_subdirectory(fixed_folder: Path, start_job: StartJob) -> None:
    project = SUBDIRECTORY.replace("/path/to/gyre", str(ROOT)) + AVERAGE
    files = {"CMakeLists.txt": project, "average.cc": README_PROGRAM, "train.cc": LIBTORCH_PROGRAM}
    # As large projects do. It takes a quarter of the time, and finds names that two of our files have in common.
    unity = ("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=12")
    programs = build_with_cmake(write(fixed_folder / "subdirectory", files), *unity)
    averages_on_two_ranks(start_job, programs / "average")
    assert fitted_the_same(runs_on_two_ranks(start_job, programs / "train"))
    assert not list((programs / "gyre").rglob("*_test")), "tests of Gyre were built within somebody else's project"


def test_both_programs_build_with_find_package(fixed_folder: Path, prefix: Path, start_job: StartJob) -> None:
    files = {"CMakeLists.txt": PACKAGE + AVERAGE + NETWORK, "average.cc": README_PROGRAM, "train.cc": LIBTORCH_PROGRAM}
    files["network.cc"] = NETWORK_PROGRAM
    # libtorch's headers take half a minute.
    definitions = (f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    programs = build_with_cmake(write(fixed_folder / "package", files), *definitions)
    averages_on_two_ranks(start_job, programs / "average")
    assert fitted_the_same(runs_on_two_ranks(start_job, programs / "train"))
    assert output_of([str(programs / "network")], fixed_folder) == "25557032 parameters, logits [2, 1000]\n"


def test_a_program_builds_with_pkg_config(fixed_folder: Path, prefix: Path, start_job: StartJob) -> None:
    folder = write(fixed_folder / "pkg-config", {"average.cc": README_PROGRAM})
    output_of(["sh", "-c", PKG_CONFIG], folder, PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig"))
    averages_on_two_ranks(start_job, folder / "average")
    assert "libgyre.so.0.1" in output_of(["ldd", str(folder / "average")], folder)


def test_gyre_config_of_a_checkout_leads_to_its_build(fixed_folder: Path, start_job: StartJob) -> None:
    """Both ways, without an installation."""
    config = [sys.executable, "-m", "gyre.config_command"]
    cmake_folder, pkg_config_folder = output_of([*config, "--cmake-dir", "--pkg-config-dir"], ROOT).split()
    project = PACKAGE.split("add_executable")[0] + AVERAGE
    folder = write(fixed_folder / "checkout", {"CMakeLists.txt": project, "average.cc": README_PROGRAM})
    averages_on_two_ranks(start_job, build_with_cmake(folder, f"-Dgyre_DIR={cmake_folder}") / "average")
    output_of(["sh", "-c", PKG_CONFIG], folder, PKG_CONFIG_PATH=pkg_config_folder)
    averages_on_two_ranks(start_job, folder / "average")


def test_gyre_config_without_libraries_says_what_makes_them(tmp_path: Path) -> None:
    copy = tmp_path / "python" / "gyre"
    shutil.copytree(ROOT / "python" / "gyre", copy)
    done = subprocess.run(
        [sys.executable, "-m", "gyre.config_command", "--cmake-dir"],
        cwd=tmp_path / "python",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"gyre-config: the Gyre in {copy} has no C++ libraries; in a checkout, run `./dev build`\n"


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (
            "COMPONENTS train",
            "gyre::models and gyre::train need a Python with torch 2.13; name it with -DPython_EXECUTABLE=",
        ),
        ("COMPONENTS data", "there is no component 'data'; there are: gyre, models, train"),
        ("9.9", "version: 0.1.0"),
    ],
)
def test_what_find_package_cannot_give_is_named(tmp_path: Path, prefix: Path, wanted: str, reason: str) -> None:
    project = f"cmake_minimum_required(VERSION 3.25)\nproject(x LANGUAGES CXX)\nfind_package(gyre {wanted} REQUIRED)\n"
    folder = write(tmp_path / "project", {"CMakeLists.txt": project})
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    configure = ["cmake", "-S", ".", "-B", "build", f"-DPython_EXECUTABLE={bare / 'bin' / 'python'}"]
    configure.append(f"-DCMAKE_PREFIX_PATH={prefix}")
    done = subprocess.run(configure, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert reason in re.sub(r"\s+", " ", done.stderr)


def test_installed_headers_need_nothing_that_is_not_installed(tmp_path: Path, prefix: Path) -> None:
    """spdlog, fmt and Boost are on this machine, but not on everybody's."""
    headers = [path.relative_to(prefix / "include").as_posix() for path in (prefix / "include").rglob("*.h")]
    assert "gyre/engine/runtime.h" in headers
    assert "gyre/train/distributed_optimizer.h" in headers
    assert "gyre/models/network.h" in headers
    assert not [header for header in headers if "/internal/" in header or "_test_support" in header]
    with_torch = ("gyre/train/", "gyre/models/network.h")
    without_torch = [header for header in headers if not header.startswith(with_torch)]
    source = tmp_path / "all.cc"
    source.write_text("".join(f'#include "{header}"\n' for header in without_torch))
    rule = output_of(["g++", "-std=c++20", "-M", f"-I{prefix / 'include'}", str(source)], tmp_path)
    read = [path for path in rule.replace("\\\n", " ").split()[1:] if path != str(source)]
    others = [path for path in read if not Path(path).is_relative_to(prefix) and not SYSTEM_HEADERS.match(path)]
    assert others == []
    named = {
        name
        for header in headers
        for name in re.findall(r"^#include <([^>]+)>", (prefix / "include" / header).read_text(), re.MULTILINE)
        if "." in name
    }
    torchs = {"ATen/core/Tensor.h", "torch/nn/module.h", "torch/optim/optimizer.h"}
    assert named == {"poll.h", "sys/types.h", *torchs}


def exported(library: Path) -> set[str]:
    """Demangled, without parameters and versions."""
    lines = output_of(["nm", "-DC", "--defined-only", str(library)], ROOT).splitlines()
    names = [line.split(maxsplit=2)[2] for line in lines]
    return {re.split(r"\(|\[abi|@", name)[0] for name in names if name.partition("@")[0] != "GYRE_0.1"}


def defined(folder: str, library_name: str = "") -> set[str]:
    """The functions of a folder's static library, which has its name unless it has another one."""
    library = BUILD / "gyre" / folder / f"libgyre_{library_name or folder}.a"
    lines = output_of(["nm", "-C", "--defined-only", "--extern-only", str(library)], ROOT).splitlines()
    return {re.split(r"\(|\[abi", line.split(" T ")[1])[0] for line in lines if " T " in line}


def declared_in(headers: str, name: str) -> bool:
    """Whether these headers have the class of a member function, or the function, which is not indented."""
    scope, _, last = name.rpartition("::")
    kind = scope.rpartition("::")[2]
    if kind[:1].isupper():
        return re.search(rf"\b(class|struct)\b[^;(]*\b{kind}\b[^;]*\{{", headers) is not None
    return re.search(rf"^(?! )[^\n/]*\b{last}\(", headers, re.MULTILINE) is not None


def test_libgyre_shows_what_its_headers_declare_and_nothing_else(prefix: Path) -> None:
    """A missing name is a link error for somebody else; a name too many meets theirs."""
    shown = exported(prefix / "lib" / "libgyre.so.0.1")
    assert not [name for name in shown if not re.match(r"(type\w+( name)? for |vtable for )?gyre::", name)]
    functions = {name for name in shown if " for " not in name}
    missing, extra = set(), set()
    for folder in IN_LIBGYRE:
        texts = [path.read_text() for path in (prefix / "include" / "gyre" / folder).rglob("*.h")]
        for name in defined(folder):
            declared = declared_in("\n".join(texts), name) and ("::internal::" not in name or "gyre::internal" in name)
            if declared and name not in functions:
                missing.add(name)
            if not declared and name in functions:
                extra.add(name)
    assert missing == set()
    needed_by_train = {"gyre::xxh3_64", "gyre::collectives::server_block_bytes"}
    needed_by_models = {"gyre::Random::Random", "gyre::Random::next_u32", "gyre::Random::uniform"}
    assert extra == needed_by_train | needed_by_models
    train = exported(prefix / "lib" / "libgyre_train.so.0.1")
    assert not [name for name in train if "gyre::train::" not in name]


def test_libgyre_models_shows_what_its_headers_declare_and_nothing_else(prefix: Path) -> None:
    shown = exported(prefix / "lib" / "libgyre_models.so.0.1")
    headers = "\n".join(path.read_text() for path in (prefix / "include" / "gyre" / "models").rglob("*.h"))
    functions = defined("models") | defined("models", "network_layers")
    wanted = {name for name in functions if "::internal::" not in name and declared_in(headers, name)}
    wanted = {name for name in wanted if name.startswith("gyre::models::")}
    assert {name for name in shown if " for " not in name} == wanted
    assert {name for name in shown if " for " in name} == {
        f"{what} for gyre::models::Network" for what in ("typeinfo", "typeinfo name", "vtable")
    }
