"""`./dev test NAME…` runs the tests that are called so, and never none: a name that fits nothing is an error."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / "tools" / "dev"


def choice(*words: str) -> subprocess.CompletedProcess[str]:
    script = f"""
        set -uo pipefail; ROOT="{ROOT}"; source "{DEV}/common.sh"; source "{DEV}/test.sh"
        choose_tests "$@"
        pattern=$(pattern_of "${{ROOMS[@]}}")
        echo "$PRESET | ${{ROOMS[*]}} | ${{TARGETS[*]}} | ${{PATHS[*]}} | ${{GYRE_TEST_LONG:-}} | $pattern"
    """
    return subprocess.run(["bash", "-c", script, "dev", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "release |  |  |  |  | ."),
        (["asan", "net"], "asan | net net_http | gyre_net_test gyre_net_http_test |  |  | ^(net|net_http)\\."),
        (
            ["train"],
            "release | train train_torch | gyre_train_test gyre_train_torch_test |  |  | ^(train|train_torch)\\.",
        ),
        (["cluster"], "release |  |  | tests/cluster |  | ."),
        (["tests/tools/tally_test.py", "--long"], "release |  |  | tests/tools/tally_test.py | 1 | ."),
        (["-k", "ring_2"], "release |  |  |  |  | .*[Rr][Ii][Nn][Gg]_2"),
        (
            ["net", "-k", "Up"],
            "release | net net_http | gyre_net_test gyre_net_http_test |  |  | ^(net|net_http)\\..*[Uu][Pp]",
        ),
    ],
)
def test_a_name_is_a_preset_a_room_a_folder_or_a_file(words: list[str], expected: str) -> None:
    assert choice(*words).stdout == f"{expected}\n"


@pytest.mark.parametrize("words", [[], ["net"], ["net", "-k", "up"], ["-k", "UP"]])
def test_ctest_finds_tests_by_the_pattern(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "CTestTestfile.cmake").write_text("add_test(net.Address.looks_up_a_name true)\n")
    pattern = choice(*words).stdout.rstrip("\n").rpartition(" | ")[2]
    found = subprocess.run(["ctest", "-N", "-R", pattern], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Total Tests: 1\n" in found.stdout


@pytest.mark.parametrize("word", ["nett", "tests", "../tools", "docs", "n*", ""])
def test_a_name_of_no_tests_is_one_error_that_lists_the_names(word: str) -> None:
    result = choice("net", word)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert word in result.stderr


@pytest.mark.parametrize("words", [["-k"], ["-k", ""], ["-k", "a b"], ["-k", ".*"]])
def test_a_word_that_is_no_part_of_a_name_is_an_error(words: list[str]) -> None:
    result = choice(*words)
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert "-k takes a word" in result.stderr
