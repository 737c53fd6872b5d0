"""`gyre completion`: the shell's completion of gyre and its training programs, from their parsers' tables.

`tables` asks the programs; `bash`, `zsh` and `fish` write each shell's script.
"""

from __future__ import annotations

import sys

from gyre._command_line import Parser
from gyre.completion import bash, fish, zsh
from gyre.completion.tables import places
from gyre.errors import Error

_SHELLS = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}

_EPILOG = """\
For all future shells:
  gyre completion bash > ~/.local/share/bash-completion/completions/gyre
  gyre completion zsh > ~/.zfunc/_gyre           (with fpath+=~/.zfunc before compinit in ~/.zshrc)
  gyre completion fish > ~/.config/fish/completions/gyre.fish

For the current shell:
  source <(gyre completion bash)"""


def parser() -> Parser:
    whole = Parser(
        prog="gyre completion",
        description="Writes the completion script of gyre and its training programs for a shell.",
        epilog=_EPILOG,
        raw=True,
    )
    whole.add_argument("shell", choices=list(_SHELLS), metavar="SHELL", help="bash, zsh or fish")
    return whole


def main(arguments: list[str]) -> int:
    own = parser()
    shell = own.parse_args(arguments).shell
    try:
        print(_SHELLS[shell](places(own)), end="")
    except Error as error:
        print(f"gyre completion: {error}", file=sys.stderr)
        return 1
    return 0
