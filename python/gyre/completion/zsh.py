"""For zsh: one function with `_arguments` for each place of a command line."""

from __future__ import annotations

import re

from gyre.completion.tables import Option, Place


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _escaped(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def _function_of(name: str) -> str:
    return "_gyre_" + re.sub(r"\W", "_", name)


def _action(option: Option) -> str:
    actions = {"file": "_files", "folder": "_files -/", "choice": f"({' '.join(option.choices)})"}
    return actions.get(option.kind, "")


def _specifications(option: Option) -> list[str]:
    specifications = []
    for name in option.names:
        # A value follows in the same word or in the next.
        joined = ("=" if name.startswith("--") else "+") if option.kind else ""
        value = f":{_escaped(option.value)}:{_action(option)}" if option.kind else ""
        specifications.append(_quoted(f"*{name}{joined}[{_escaped(option.description)}]{value}"))
    return specifications


def _function(place: Place) -> str:
    words = [one for option in place.options for one in _specifications(option)]
    then = ""
    if place.verbs:
        # zsh evaluates what stands between the double quotes.
        shown = {verb: re.sub(r'([`$"\\])', r"\\\1", _escaped(text)) for verb, text in place.verbs.items()}
        verbs = " ".join(f'{verb}\\:"{text}"' for verb, text in shown.items())
        words += [_quoted(f"1:verb:(({verbs}))"), "'*:: :->arguments'"]
        cases = [f"      {verb}) {_function_of(f'{place.name} {verb}')} ;;" for verb in place.verbs]
        then = "\n  [[ $state == arguments ]] || return\n  case $words[1] in\n" + "\n".join(cases) + "\n  esac"
    elif place.words:
        words.append(_quoted(f"1:word:({' '.join(place.words)})"))
    elif place.runs_a_command:
        words += ["'(-)1:command:_command_names -e'", "'*::arguments:_normal'"]
    else:
        words.append("'*:file:_files'")
    listed = " \\\n    ".join(words)
    head = f"{_function_of(place.name)}() {{\n  local curcontext=$curcontext state line\n"
    return f"{head}  _arguments -C -S \\\n    {listed}{then}\n}}\n"


def script(places: list[Place]) -> str:
    """The whole script: a function to autoload, or a file to source."""
    programs = [place.name for place in places if " " not in place.name]
    cases = [f"    {name}) {_function_of(name)} ;;" for name in programs]
    return (
        f"#compdef {' '.join(programs)}\n"
        "# Completion for zsh, written by `gyre completion zsh`.\n"
        + "".join(_function(place) for place in places)
        + "_gyre() {\n  case ${service:-$words[1]:t} in\n"
        + "\n".join(cases)
        + "\n  esac\n}\n"
        + 'if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _gyre "$@"\nelse\n'
        + f"  compdef _gyre {' '.join(programs)}\nfi\n"
    )
