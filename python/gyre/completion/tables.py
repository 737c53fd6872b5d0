"""The places in a command line, and the words that can occur there."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gyre import doctor
from gyre._command_line import Parser, Table
from gyre.bench.__main__ import parser as bench_parser
from gyre.errors import Error
from gyre.explain.__main__ import parser as explain_parser
from gyre.launch.program import find_program

_ASK_SECONDS = 60
# These take a command after their options.
_RUN_COMMANDS = ("gyre run", "gyre explain")
# Their options are completed too, if they were built.
_TRAINING_PROGRAMS = ("gyre-cifar10", "gyre-cosmoflow", "gyre-resnet50")
_NEED_TORCH = ("export", "score")
_FILES = ("FILE", "PATH", "CONFIG")
_FOLDERS = ("DIR",)


@dataclass
class Option:
    names: list[str]
    description: str
    value: str = ""  # The name of the value; empty if there is none.
    choices: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Of its value: "file", "folder", "choice", "other", or empty."""
        if self.choices:
            return "choice"
        if self.value in _FILES:
            return "file"
        return "folder" if self.value in _FOLDERS else "other" if self.value else ""


@dataclass
class Place:
    """A program with the verbs behind it, as "gyre bench step"."""

    name: str
    options: list[Option]
    verbs: dict[str, str]  # With their descriptions.
    words: list[str]  # Other words that can occur there.

    @property
    def runs_a_command(self) -> bool:
        return self.name in _RUN_COMMANDS


def _parsers_with_torch() -> dict[str, Parser]:
    """Of the commands that need torch. Where it is not installed their options are not completed."""
    found = {}
    for verb in _NEED_TORCH:
        with contextlib.suppress(ModuleNotFoundError):
            found[verb] = importlib.import_module(f"gyre.models.{verb}").parser()
    return found


def places(own: Parser) -> list[Place]:
    """The places of gyre and, if they can run, of the training programs. `own`: the parser of the calling command."""
    program = find_program()
    table = _ask(program)
    parsers = {
        "bench": bench_parser(),
        "explain": explain_parser(),
        **_parsers_with_torch(),
        "doctor": doctor.parser(),
        "completion": own,
    }
    for verb, parser in parsers.items():
        table["verbs"][verb] = {**parser.table(), "description": table["verbs"][verb]["description"]}
    found = list(_flattened("gyre", table))
    for training in (program.resolve().parent / name for name in _TRAINING_PROGRAMS):
        if not training.exists():
            continue
        # If it cannot run (another torch), gyre itself is still completed.
        with contextlib.suppress(Error):
            found += _flattened(training.name, _ask(training))
    return found


def _ask(program: Path) -> Table:
    """Error if it does not answer."""
    try:
        done = subprocess.run(
            [program, "--option-table"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=True
        )
        table: Table = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as failure:
        raise Error(f"{program} does not say which options it has: {failure}") from failure
    return table


def _flattened(name: str, table: Table) -> Iterator[Place]:
    options = [Option(**option) for option in table["options"]]
    verbs = {verb: _first_sentence(inside["description"]) for verb, inside in table["verbs"].items()}
    for option in options:
        option.description = _first_sentence(option.description)
    yield Place(name, options, verbs, table.get("words", []))
    for verb, inside in table["verbs"].items():
        yield from _flattened(f"{name} {verb}", inside)


def _first_sentence(text: str) -> str:
    """Of a description, on one line, without the name that it begins with."""
    line = " ".join(text.split("\n\n", maxsplit=1)[0].split()).partition(". ")[0].removesuffix(".")
    return re.sub(r"^`[^`]*`: ", "", line)
