"""The command line of `gyre explain`."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gyre._command_line import Parser
from gyre._step_record import SUFFIX
from gyre.bench.errors import UsageError
from gyre.bench.launch import Interrupted, Launcher, launcher, module, program
from gyre.bench.options import MODEL_NAMES, checked_model, size_of
from gyre.explain import architecture
from gyre.explain.architecture import MOST_HOSTS, Setting, bytes_per_second
from gyre.explain.report import complete, words
from gyre.launch.program import MOST_RANKS_PER_HOST

_USAGE_EXIT_CODE = 2
_SIGNALLED_EXIT_CODE = 128
# Exit codes of a command that cannot be run, or is not found.
_NOT_STARTED = (126, 127)
_LONGEST_SECONDS = 86400
_END_SECONDS = 20
_OF_WORKERS = ("--bytes", "--rate", "--latency-us", "--spare-hosts")
_RATE = "10gbit"
_LATENCY_US = 50.0
_MOST_LATENCY_US = 10_000_000
_MOST_BYTES = 1 << 44

_EPILOG = """\
Runs COMMAND as `gyre run` does, or a few training steps of a model, and prints a report at the end: the speed of the
ranks' machine, the algorithm of each bucket of gradients and the reason for it, its predicted and achieved time, how
much of the exchange was hidden behind backward, and the other parts of a step. Times are rank 0's. With -o json stdout
has only the report; the job's own stdout goes to stderr.

With --workers it runs nothing, and predicts from a cost model whether that many workers on hosts of their own should
exchange gradients by allreduce or through parameter servers, through how many, and what one more host would bring.

Examples:
  gyre explain -n 4 -- python train.py --epochs 1
  gyre explain -n 4 --seconds 30 -- python train.py
  gyre explain -n 2 --model resnet50
  gyre explain --workers 8 --bytes 100MB --rate 10gbit --spare-hosts 4

After Ctrl-C or --seconds, a Python program still produces its report.
Exit code: the job's; 1 if there is no report; 2 for an invalid option; 130 after Ctrl-C."""


def parser() -> Parser:
    whole = Parser(
        prog="gyre explain",
        usage="gyre explain [-n N] [--seconds S] [-o table|json] [--model MODEL | -- COMMAND [ARGUMENTS…]]\n"
        "       gyre explain --workers N --bytes SIZE [--rate RATE] [--latency-us T] [--spare-hosts N] [-o table|json]",
        description="Reports where a job's exchange spends its time, or compares ways to exchange gradients.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("-n", "--ranks", default="1", help="number of ranks (default: 1)")
    whole.add_argument("--seconds", type=float, help="end the job after this time (default: when it ends by itself)")
    whole.add_argument("--model", help=f"a made-up training of {', '.join(MODEL_NAMES)} instead of COMMAND")
    whole.add_argument("--steps", type=int, default=5, help="of --model (default: 5)")
    whole.add_argument("--workers", type=int, help="compare architectures for this many workers, each on its own host")
    whole.add_argument("--bytes", help="with --workers: the gradients of a worker, such as 100MB")
    whole.add_argument("--rate", help="with --workers: of a host's link in each direction (default: 10gbit)")
    whole.add_argument("--latency-us", type=float, help="with --workers: from one host to another (default: 50)")
    whole.add_argument("--spare-hosts", type=int, help="with --workers: hosts that could become servers (default: 0)")
    whole.add_argument("-o", "--output", choices=("table", "json"), default="table", help="what to print")
    whole.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return whole


def value_of(arguments: argparse.Namespace, option: str) -> object:
    return getattr(arguments, option.removeprefix("--").replace("-", "_"))


def command_of(arguments: argparse.Namespace) -> list[str]:
    """The command that every rank runs. UsageError unless there is exactly one."""
    command: list[str] = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if (arguments.model is None) == (not command):
        raise UsageError("either --model or a command is needed, as in `gyre explain -n 4 -- python train.py`")
    given = next((option for option in _OF_WORKERS if value_of(arguments, option) is not None), None)
    if given is not None:
        raise UsageError(f"{given} needs --workers, and runs nothing")
    if not arguments.ranks.isdecimal() or not 1 <= int(arguments.ranks) <= MOST_RANKS_PER_HOST:
        raise UsageError(f"-n is '{arguments.ranks}'; a whole number from 1 to {MOST_RANKS_PER_HOST} is needed")
    if arguments.seconds is not None and not 0 < arguments.seconds <= _LONGEST_SECONDS:
        raise UsageError(f"--seconds is {arguments.seconds:g}; more than 0 and at most {_LONGEST_SECONDS} are needed")
    if arguments.model is None:
        return command
    if not 1 <= arguments.steps <= 1000:
        raise UsageError(f"--steps is {arguments.steps}; 1 to 1000 are possible")
    return module("train_model", "--model", checked_model(arguments.model), "--steps", str(arguments.steps))


def setting_of(arguments: argparse.Namespace) -> Setting:
    """What --workers and the options with it describe. UsageError names the one that is wrong."""
    if arguments.model is not None or arguments.command:
        raise UsageError("--workers predicts, and runs nothing: leave out --model and the command")
    if not 2 <= arguments.workers <= MOST_HOSTS:
        raise UsageError(f"--workers is {arguments.workers}; 2 to {MOST_HOSTS} are possible")
    if arguments.bytes is None:
        raise UsageError("--workers needs --bytes, the gradients of a worker, such as --bytes 100MB")
    size = size_of(arguments.bytes, "--bytes")
    if not 1 <= size <= _MOST_BYTES:
        raise UsageError(f"--bytes is '{arguments.bytes}'; 1 byte to 16 TB are possible")
    spare_hosts = arguments.spare_hosts or 0
    if not 0 <= spare_hosts <= MOST_HOSTS:
        raise UsageError(f"--spare-hosts is {spare_hosts}; 0 to {MOST_HOSTS} are possible")
    latency_us = _LATENCY_US if arguments.latency_us is None else arguments.latency_us
    if not 0 <= latency_us <= _MOST_LATENCY_US:
        raise UsageError(f"--latency-us is {latency_us:g}; 0 to {_MOST_LATENCY_US} are possible")
    rate = arguments.rate or _RATE
    bytes_per_second(rate)
    return Setting(arguments.workers, size, rate, latency_us, spare_hosts)


@dataclass
class Ended:
    """How the job ended: by itself, or because of a signal."""

    code: int
    signal: int | None = None  # The one that ended it.


class _Job:
    """A `gyre run` whose stderr is passed on until the job is interrupted: the ranks' later messages only concern
    the interruption."""

    def __init__(self, command: Sequence[str], *, stdout: IO[str] | None) -> None:
        """`stdout`: where the job's own goes; None: where ours goes."""
        # A session of its own: Ctrl-C comes here, and is passed on.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, start_new_session=True
        )
        self._interrupted = False
        self._relay = threading.Thread(target=self._pass_on)
        self._relay.start()

    def _pass_on(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if not self._interrupted:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()

    def wait(self, seconds: float | None) -> Ended:
        received = None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._interrupt()
        except Interrupted as interrupted:
            received = interrupted.number
            self._interrupt()
        self._relay.join(_END_SECONDS)
        code = self._process.wait(_END_SECONDS)
        return Ended(0 if self._interrupted and received is None else code, received)

    def _interrupt(self) -> None:
        """SIGINT, which Python programs turn into an orderly end."""
        self._interrupted = True
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()

    def end(self) -> None:
        """Leaves no process behind, thanks to the guardian of `gyre run`."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def run(arguments: argparse.Namespace, programs: Launcher) -> tuple[Ended, Path]:
    """The job, and where its report is if there is one."""
    command = command_of(arguments)
    report = programs.file("report.json")
    gyre = [str(program("gyre")), "run", "-n", arguments.ranks, "--env", f"GYRE_EXPLAIN_FILE={report}", "--"]
    # With JSON output, stdout has nothing else.
    job = _Job([*gyre, *command], stdout=sys.stderr if arguments.output == "json" else None)
    try:
        return job.wait(arguments.seconds), report
    finally:
        job.end()


def print_report(arguments: argparse.Namespace, ended: Ended, path: Path) -> int:
    if not path.exists():
        if ended.code in _NOT_STARTED:  # `gyre run` has said so.
            return ended.code
        print(
            "gyre explain: there is no report: the program does not use Gyre (such as the backend gyre of "
            "torch.distributed), the job ended before rank 0 had joined it, or rank 0 was killed before it left (a "
            "program that is not Python's must end by itself)",
            file=sys.stderr,
        )
        return ended.code or 1
    steps = path.with_name(path.name + SUFFIX)
    report = complete(json.loads(path.read_text()), json.loads(steps.read_text()) if steps.exists() else None)
    print(json.dumps(report, indent=1) if arguments.output == "json" else words(report))
    return _SIGNALLED_EXIT_CODE + ended.signal if ended.signal is not None else ended.code


def main(words_given: Sequence[str] | None = None) -> int:
    """Runs and explains one job, or compares architectures; returns the exit code."""
    arguments = parser().parse_args(words_given)
    started = time.monotonic()
    try:
        if arguments.workers is not None:
            comparison = architecture.explain(setting_of(arguments))
            print(json.dumps(comparison, indent=1) if arguments.output == "json" else architecture.words(comparison))
            return 0
        with launcher(verbose=False) as programs:
            ended, path = run(arguments, programs)
            return print_report(arguments, ended, path)
    except UsageError as error:
        print(f"gyre explain: {error}\nSee `gyre explain --help`.", file=sys.stderr)
        return _USAGE_EXIT_CODE
    except Interrupted as interrupted:
        seconds = time.monotonic() - started
        print(f"gyre explain: interrupted again after {seconds:.0f} s; no report", file=sys.stderr)
        return _SIGNALLED_EXIT_CODE + interrupted.number


if __name__ == "__main__":
    sys.exit(main())
