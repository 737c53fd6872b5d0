"""`gyre completion`: the shell's completion of gyre and its training programs, from the tables that their parsers have.

`tables` asks the programs; `bash`, `zsh` and `fish` write what each shell reads.
"""

from __future__ import annotations

import sys

from gyre._command_line import Parser
from gyre.completion import bash, fish, zsh
from gyre.completion.tables import places
from gyre.errors import Error

_SHELLS = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}

_EPILOG = """\
Once, for every shell to come:
  gyre completion bash > ~/.local/share/bash-completion/completions/gyre
  gyre completion zsh > ~/.zfunc/_gyre           (with fpath+=~/.zfunc before compinit in ~/.zshrc)
  gyre completion fish > ~/.config/fish/completions/gyre.fish

For this one:
  source <(gyre completion bash)"""


def parser() -> Parser:
    whole = Parser(
        prog="gyre completion",
        description="Writes what makes a shell complete the verbs and options of gyre and its training programs.",
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
