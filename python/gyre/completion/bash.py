"""For bash: three tables as `case`, and a function that walks the words before the cursor."""

from __future__ import annotations

import shlex

from gyre.completion.tables import Place

_WALK = r"""
_gyre() {
  local place=${COMP_WORDS[0]##*/} current=${COMP_WORDS[COMP_CWORD]} option= word i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case $word in
      --) ((i++)); break ;;
      -*)
        _gyre_value "$place $word" >/dev/null || continue
        # readline makes three words of --option=value.
        [[ ${COMP_WORDS[i + 1]} == = ]] && ((i++))
        ((i++))
        ((i < COMP_CWORD)) || option=$word
        ;;
      *)
        [[ " $(_gyre_verbs "$place") " == *" $word "* ]] || break
        place+=" $word"
        ;;
    esac
  done
  if [[ -n $option ]]; then
    _gyre_complete_value "$(_gyre_value "$place $option")" "${current#=}"
  elif ((i < COMP_CWORD)) || [[ ${COMP_WORDS[i - 1]} == -- ]]; then
    _gyre_complete_command "$place" "$i"
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$(_gyre_options "$place")" -- "$current"))
  elif [[ -n $(_gyre_verbs "$place") ]]; then
    COMPREPLY=($(compgen -W "$(_gyre_verbs "$place")" -- "$current"))
  else
    _gyre_complete_command "$place" "$i"
  fi
}

_gyre_complete_value() {
  compopt -o filenames 2>/dev/null
  case $1 in
    @file) COMPREPLY=($(compgen -f -- "$2")) ;;
    @folder) COMPREPLY=($(compgen -d -- "$2")) ;;
    @other) ;;
    *) COMPREPLY=($(compgen -W "$1" -- "$2")) ;;
  esac
}

# What stands from word $2 on is a command with words of its own, or files.
_gyre_complete_command() {
  local current=${COMP_WORDS[COMP_CWORD]}
  if ! _gyre_runs "$1"; then
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
  elif declare -F _command_offset >/dev/null; then
    _command_offset "$2"
  elif (($2 == COMP_CWORD)); then
    COMPREPLY=($(compgen -c -- "$current"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}

"""


def _function(name: str, cases: list[tuple[str, str]], otherwise: str = "") -> str:
    lines = [f"    {shlex.quote(key)}) {action} ;;" for key, action in cases]
    if otherwise:
        lines.append(f"    *) {otherwise} ;;")
    return f"{name}() {{\n  case $1 in\n" + "\n".join(lines) + "\n  esac\n}\n"


def script(places: list[Place]) -> str:
    """The whole script."""
    verbs, options, values = [], [], []
    for place in places:
        if place.verbs or place.words:
            verbs.append((place.name, f"echo {shlex.quote(' '.join([*place.verbs, *place.words]))}"))
        names = [name for option in place.options for name in option.names]
        options.append((place.name, f"echo {shlex.quote(' '.join(names))}"))
        for option in place.options:
            if option.kind:
                wanted = " ".join(option.choices) if option.choices else f"@{option.kind}"
                values += [(f"{place.name} {name}", f"echo {shlex.quote(wanted)}") for name in option.names]
    commands = [(place.name, "return 0") for place in places if place.runs_a_command]
    return (
        "# Completion of gyre and its training programs for bash, written by `gyre completion bash`.\n"
        + _function("_gyre_verbs", verbs)
        + _function("_gyre_options", options)
        + _function("_gyre_value", values, "return 1")
        + _function("_gyre_runs", commands, "return 1")
        + _WALK
        + f"complete -F _gyre {' '.join(place.name for place in places if ' ' not in place.name)}\n"
    )
