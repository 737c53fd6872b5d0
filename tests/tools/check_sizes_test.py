"""What is too long must be found, and the list of exceptions must only be able to shrink."""

from pathlib import Path

import pytest
from check_sizes import problems


def cpp_function(lines: int) -> str:
    return "int long_one() {\n" + "  step();\n" * (lines - 2) + "}\n"


def python_function(lines: int) -> str:
    return "def long_one() -> None:\n" + "    step()\n" * (lines - 1)


@pytest.mark.parametrize(
    ("path", "function"), [("a.cc", cpp_function), ("a.h", cpp_function), ("a.py", python_function)]
)
def test_seventy_lines_pass_and_seventy_one_do_not(repository: Path, plant, path: str, function) -> None:
    plant(path, function(70))
    assert problems(repository) == []
    plant(path, function(71))
    assert problems(repository) == [f"{path}:long_one (line 1): 71 lines, at most 70"]


@pytest.mark.parametrize("path", ["a.cc", "a.h", "a.py"])
def test_five_hundred_lines_pass_and_one_more_does_not(repository: Path, plant, path: str) -> None:
    plant(path, "\n" * 500)
    assert problems(repository) == []
    plant(path, "\n" * 501)
    assert problems(repository) == [f"{path} (line 1): 501 lines, at most 500"]


@pytest.mark.parametrize(("path", "text"), [("a.cc", "int f() {\n"), ("a.py", "def f(:\n")])
def test_a_file_that_cannot_be_read_is_named(repository: Path, plant, path: str, text: str) -> None:
    plant(path, text)
    with pytest.raises(SystemExit, match=path):
        problems(repository)


def test_an_exception_is_honoured_up_to_its_length(repository: Path, plant) -> None:
    plant("tools/size_exceptions.txt", "# why\na.cc:long_one 80\n")
    plant("a.cc", cpp_function(80))
    assert problems(repository) == []
    plant("a.cc", cpp_function(81))
    assert problems(repository) == ["a.cc:long_one (line 1): 81 lines, at most 80"]


def test_an_exception_that_is_not_needed_must_go(repository: Path, plant) -> None:
    plant("tools/size_exceptions.txt", "a.cc:long_one 80\n")
    plant("a.cc", cpp_function(70))
    (found,) = problems(repository)
    assert "remove the entry" in found


@pytest.mark.parametrize("entry", ["a.cc:long_one 81", "b.cc:long_one 80"])
def test_the_list_cannot_grow(repository: Path, plant, commit, entry: str) -> None:
    plant("tools/size_exceptions.txt", "a.cc:long_one 80\n")
    plant("a.cc", cpp_function(80))
    commit()
    plant("c.txt", "something else, so that there is a commit before the last\n")
    commit()
    plant("tools/size_exceptions.txt", f"{entry}\n")
    plant(entry.partition(":")[0], cpp_function(80))
    assert any("may only shrink" in found for found in problems(repository))
