"""Shared by the commands that are written in Python: a parser with helpful errors, and the table of its options."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

USAGE_EXIT_CODE = 2

Table = dict[str, Any]


def _suggestion(word: str, known: Iterable[str], quote: str = "") -> str:
    """ "; did you mean X?", or nothing if no known word resembles it."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {quote}{found[0]}{quote}?" if found else ""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that suggests corrections for mistyped commands and options, in the words of `gyre` itself, and
    rejects abbreviations, whose meaning would change with every new option."""

    def __init__(self, *arguments: Any, raw: bool = False, **options: Any) -> None:
        """`raw`: the description and the epilog keep their lines."""
        if raw:
            options["formatter_class"] = argparse.RawDescriptionHelpFormatter
        options["allow_abbrev"] = False
        self.actions: list[argparse.Action] = []  # All actions that were added to the parser itself.
        super().__init__(*arguments, **options)
        self.verbs: dict[str, Parser] = {}

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        self.actions.append(super().add_argument(*names, **options))
        return self.actions[-1]

    def add_subparsers(self, **options: Any) -> Any:
        made = super().add_subparsers(**options)
        self.verbs = made.choices
        return made

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        words = list(sys.argv[1:] if args is None else args)
        if self.verbs and words and not words[0].startswith("-") and words[0] not in self.verbs:
            meant = _suggestion(words[0], self.verbs, "'") or f"; there are: {', '.join(self.verbs)}"
            self.error(f"unknown command '{words[0]}'{meant}")
        parsed, extra = self.parse_known_args(words, namespace)
        if extra:
            chosen = self.verbs.get(words[0], self)
            chosen.refuse(extra[0])
        return parsed

    def refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"unexpected argument '{word}'")
        known = [name for action in self.actions for name in action.option_strings]
        option = word.partition("=")[0]
        self.error(f"unknown option {option}{_suggestion(option, known)}")

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}\nSee `{self.prog} --help`.", file=sys.stderr)
        sys.exit(USAGE_EXIT_CODE)

    def table(self) -> Table:
        """As gyre/cli/option_table.h describes it."""
        shown = [action for action in self.actions if action.help != argparse.SUPPRESS and action.option_strings]
        return {
            "description": (self.description or "").strip(),
            "options": [_described(action) for action in shown],
            "verbs": {name: verb.table() for name, verb in self.verbs.items()},
            "words": self._words(),
        }

    def _words(self) -> list[str]:
        """Choices of positional arguments."""
        arguments = [action for action in self.actions if not action.option_strings]
        return [str(choice) for action in arguments for choice in action.choices or ()]


def _described(action: argparse.Action) -> Table:
    described: Table = {"names": list(action.option_strings), "description": action.help or ""}
    if action.nargs != 0:
        described["value"] = "FILE" if action.type is Path else str(action.metavar or action.dest.upper())
        if action.choices is not None:
            described["choices"] = [str(choice) for choice in action.choices]
    return described
