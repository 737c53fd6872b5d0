"""The command line of `gyre bench`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from gyre._command_line import Parser
from gyre.bench import allreduce, exchange, jobs, loader, messages, moves, ps, stage, step, store
from gyre.bench.errors import BenchError, UsageError
from gyre.bench.launch import Interrupted, launcher
from gyre.bench.report import check_writable, table, write_json

_USAGE_EXIT_CODE = 2
_SIGNALLED_EXIT_CODE = 128

_EPILOG = """\
Columns: ours, then each peer and its time divided by ours (above 1: Gyre is faster), then the bound (the unavoidable
memory traffic at this machine's memory speed) and how much of it ours reaches.

Examples:
  gyre bench allreduce --ranks 2 --sizes 4,64KB,16MB
  gyre bench messages --ranks 2 --sizes 4,16MB
  gyre bench exchange resnet50 --json exchange.json
  gyre bench step vgg16 --image-size 32 --batch 32
  gyre bench ps --workers 2 --servers 1 --bytes 100MB
  gyre bench jobs --jobs 1000 --nodes 8
  gyre bench loader images
  gyre bench stage loopback
  gyre bench store local small

Exit code: 0 if everything was measured and every result was right; 1 if a program failed; 2 for an invalid option;
130 after Ctrl-C."""


def parser() -> Parser:
    whole = Parser(
        prog="gyre bench",
        description="Measures Gyre's exchange, jobs, loader and staging here, compared with bounds and peers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = whole.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in (allreduce, messages, moves, exchange, step, ps, jobs, loader, stage, store):
        verb.add_verb(verbs)
    return whole


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    arguments = parser().parse_args(words)
    where = f"gyre bench {arguments.verb}"
    try:
        if arguments.json is not None:
            check_writable(arguments.json)
        with launcher(verbose=sys.stderr.isatty()) as programs:
            rows = arguments.measure(arguments, programs)
        if arguments.json is not None:
            write_json(arguments.json, rows)
    except UsageError as error:
        print(f"{where}: {error}\nSee `{where} --help`.", file=sys.stderr)
        return _USAGE_EXIT_CODE
    except (BenchError, OSError) as error:
        print(f"{where}: {error}", file=sys.stderr)
        return 1
    except Interrupted as signal:
        print(f"{where}: interrupted; nothing was written", file=sys.stderr)
        return _SIGNALLED_EXIT_CODE + signal.number
    print(json.dumps(rows, indent=1) if arguments.output == "json" else table(rows))
    for note in programs.notes:
        print(f"{where}: {note}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
