"""The commands that README and the guides print, as a reader sees them."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md")), ROOT / "docs" / "performance.md"]

PROGRAMS = (
    r"(?!gyre[\w -]*: )"  # What Gyre says.
    r"(\./|\.venv/bin/)?(dev|gyre|gyre-[a-z0-9]+|python|pip|cmake|g\+\+|torchrun|srun|mpirun|head|export|make-job) "
)
COMMAND = re.compile(rf"(\$ )?([A-Z_]+=\S+ )*(({PROGRAMS})|[A-Z]+=').*")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORDS_IN_TEXT = re.compile(r"`(gyre(?:-[a-z0-9]+)?(?: [^`]+)?)`")


@dataclass(frozen=True)
class Command:
    page: str
    line: int
    text: str  # Without a comment behind it.

    @property
    def is_form(self) -> bool:
        """A summary of options, not something to type."""
        return " [-" in self.text

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def without_comment(line: str) -> str:
    return re.sub(r"\s+# .*", "", line)


def block_commands(page: Path) -> Iterator[Command]:
    """Those in the blocks without a language: lines that begin with a program (after `$ `, where output follows)."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        if block.group(1) not in ("", "sh"):
            continue
        first = text.count("\n", 0, block.start(2)) + 1
        lines = block.group(2).splitlines()
        prompts = any(line.startswith("$ ") for line in lines)
        for number, line in enumerate(lines, first):
            if COMMAND.fullmatch(line) and line.startswith("$ ") == prompts:
                rest = itertools.takewhile(re.compile(r" +\[--").match, lines[number - first + 1 :])  # Of a long form.
                yield Command(page.name, number, " ".join((without_comment(line.removeprefix("$ ")), *rest)))


def inline_commands(page: Path) -> Iterator[Command]:
    """Those of Gyre's programs between backticks, with words after the program."""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        for found in WORDS_IN_TEXT.finditer(line):
            text = found.group(1).replace("\\|", "|")
            if " " in text and ":" not in text.split()[1]:
                yield Command(page.name, number, text)


def simple_commands(text: str) -> Iterator[list[str]]:
    """The words of each call in a line, without variables: `gyre run -n 2 -- gyre-cifar10 --lr 1` has two."""
    text = re.sub(r"[\[\]…]", " ", text)
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    call: list[str] = []
    for word in words:
        if word in ("&&", "|", "&", ";", "--"):
            if call:
                yield call
            call = []
        elif re.fullmatch(r"(\.venv/bin/)?gyre(-[a-z0-9]+)?|python3?|(\S*/)?[a-z_0-9]+\.py", word) and "=" not in word:
            if call:
                yield call
            call = [Path(word).name]
        elif call or "=" not in word:
            call.append(word)
    if call:
        yield call
