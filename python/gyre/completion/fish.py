"""For fish: one `complete` for each option and verb, each with the place where it holds."""

from __future__ import annotations

from gyre.completion.tables import Option, Place

_WALK = """
# The verbs before the cursor; "… command" once something stands there that is neither verb nor option.
function __gyre_place
    set -l words (commandline -opc)
    set -l place (string replace -r '.*/' '' -- $words[1])
    set -l value no
    for word in $words[2..-1]
        if test $value = yes
            set value no
        else if test "$word" = --
            echo "$place command"
            return
        else if contains -- "$place $word" $__gyre_values
            set value yes
        else if string match -q -- '-*' $word
            continue
        else if contains -- "$place $word" $__gyre_places
            set place "$place $word"
        else
            echo "$place command"
            return
        end
    end
    echo $place
end

function __gyre_at
    test (__gyre_place) = "$argv[1]"
end
"""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _names(option: Option) -> str:
    words = []
    for name in option.names:
        kind = "-l" if name.startswith("--") else "-s" if len(name) == 2 else "-o"
        words.append(f"{kind} {name.lstrip('-')}")
    return " ".join(words)


def _value(option: Option) -> str:
    values = {
        "file": "-r -F",
        "folder": "-x -a '(__fish_complete_directories)'",
        "choice": f"-x -a {_quoted(' '.join(option.choices))}",
        "other": "-x",
    }
    return values.get(option.kind, "")


def _lines(place: Place) -> list[str]:
    program = place.name.partition(" ")[0]
    start = f"complete -c {program} -n {_quoted(f'__gyre_at {_quoted(place.name)}')}"
    lines = [f"{start} -f -a {verb} -d {_quoted(text)}" for verb, text in place.verbs.items()]
    lines += [f"{start} -f -a {word}" for word in place.words]
    lines += [f"{start} {_names(one)} {_value(one)} -d {_quoted(one.description)}" for one in place.options]
    if place.runs_a_command:
        lines.append(f"{start} -a '(__fish_complete_command)'")
    return lines


def script(places: list[Place]) -> str:
    """The whole script."""
    values = [f"{place.name} {name}" for place in places for one in place.options if one.kind for name in one.names]
    lines = ["# Completion of gyre and its training programs for fish, written by `gyre completion fish`."]
    lines.append("set -g __gyre_places " + " ".join(_quoted(place.name) for place in places))
    lines.append("set -g __gyre_values " + " ".join(map(_quoted, values)))
    return "\n".join(lines) + _WALK + "\n" + "\n".join(line for place in places for line in _lines(place)) + "\n"
