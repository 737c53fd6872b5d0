"""`./dev COMMAND --help` explains the command, and does nothing else: no set-up, no build, no test."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def dev(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(ROOT / "dev"), *words], capture_output=True, text=True, check=False, timeout=60)


def verbs() -> list[str]:
    script = (ROOT / "dev").read_text(encoding="utf-8")
    found = [*re.findall(r"^    ([a-z]+)\) ", script, re.MULTILINE), "setup"]
    return sorted(set(found) - {"help"})


@pytest.mark.parametrize("verb", verbs())
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_a_command_explains_itself(verb: str, option: str) -> None:
    result = dev(verb, option)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"usage:\n  ./dev {verb}")
    others = set(re.findall(r"^  \./dev ([a-z]+)", result.stdout, re.MULTILINE))
    assert others == {verb}


def test_the_tests_are_not_asked_what_help_is() -> None:
    result = dev("test", "net", "--durations", "--help")
    assert result.returncode == 0
    for words in ("-k WORD", "--changed [--far] [BASE]", "./dev test wheel", "./dev test torch VERSION"):
        assert words in result.stdout


def test_a_command_that_there_is_not_is_an_error_even_with_help() -> None:
    result = dev("tset", "--help")
    assert result.returncode == 2
    assert "unknown command 'tset'" in result.stderr
