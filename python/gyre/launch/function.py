"""gyre.run(): a function as the ranks of a job, for notebooks and tests."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gyre.errors import Error, InvalidArgumentError
from gyre.launch.program import find_program

Value = TypeVar("Value")

CALL_FILE = "call.pickle"
RESULT_FILE = "result.json"


class RunError(Error):
    """A rank of gyre.run() failed. `rank`, and `traceback`: its own, as text."""

    code = "RANK_FAILED"

    def __init__(self, message: str, rank: int | None = None, traceback: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.traceback = traceback


def run(
    function: Callable[..., Value],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    np: int = 1,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> list[Value]:
    """Calls function(*args, **kwargs) in `np` new processes on this host, ranks of one job; returns their results in
    rank order. Their output is printed here, each line prefixed with its rank.

    A function of an imported module is imported there; one of a script, a notebook cell, a lambda or a closure is sent
    whole, with what it refers to. `env`: variables for the ranks. `options`: options of `gyre run`. RunError carries
    the traceback of the rank that failed first; the others have ended by then. It is also raised where a rank ends
    without a result, or with one that cannot be pickled. InvalidArgumentError before anything has started for a call
    that cannot be, because of a lock or an open file, for instance.
    """
    if not callable(function):
        raise InvalidArgumentError(f"{function!r} cannot be called; a function is needed, as in gyre.run(train, np=2)")
    if not isinstance(np, int) or np < 1:
        raise InvalidArgumentError(f"np is {np!r}; a whole number of ranks is needed, one at least")
    if isinstance(args, str) or not isinstance(args, Iterable):
        raise InvalidArgumentError(
            f"args is {args!r}; it takes the function's arguments, as in args=(1,); the number of ranks is np=2"
        )
    call = _pickled((function, tuple(args), dict(kwargs or {})))
    # Private to this user, because the ranks' results in it are unpickled.
    with tempfile.TemporaryDirectory(prefix="gyre-run-") as name:
        folder = Path(name)
        (folder / CALL_FILE).write_bytes(call)
        command = [
            str(find_program()),
            "run",
            "-n",
            str(np),
            *options,
            "--result-file",
            str(folder / RESULT_FILE),
            "--",
        ]
        command += [sys.executable, "-u", "-m", "gyre.launch.call", name]
        code, errors = _watch(command, {**os.environ, **_import_path(), **(env or {})})
        results = [folder / f"result-{rank}.pickle" for rank in range(np)]
        if code != 0:
            raise _failure(folder, code, errors)
        for rank, path in enumerate(results):
            if not path.exists():
                raise RunError(
                    f"rank {rank} ended without a result: its function ended the process, as by exit()", rank
                )
        return [pickle.loads(path.read_bytes()) for path in results]


def _import_path() -> dict[str, str]:
    """Lets the ranks import what this process can import: from a notebook's folder, from a checkout."""
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


def _pickled(call: tuple[Any, ...]) -> bytes:
    """With the functions and classes of a script or a notebook, which the ranks cannot import, in the pickle."""
    import cloudpickle  # noqa: PLC0415  `import gyre` must not wait for it.

    try:
        dumped: bytes = cloudpickle.dumps(call)
    except Exception as error:
        raise InvalidArgumentError(
            f"{call[0]!r} or its arguments cannot be sent to other processes: {error}"
        ) from error
    return dumped


def _watch(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Prints the output with Python's print, so that a notebook shows it; returns the exit code and the last lines."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    last: list[str] = []
    try:
        for line in process.stdout:
            print(line, end="")
            last = [*last[-60:], line]
        return process.wait(), "".join(last)
    except BaseException:  # Also on a notebook's interrupt: the launcher ends the ranks.
        process.terminate()
        process.wait()
        raise


def _failure(folder: Path, code: int, said: str) -> RunError:
    """The rank that `gyre run` names: it knows more than the ranks' exceptions show."""
    rank: int | None = None
    if (folder / RESULT_FILE).exists():
        rank = json.loads((folder / RESULT_FILE).read_text())["first_failed_rank"]
    own = folder / f"failure-{rank}.txt"
    if rank is not None and own.exists():
        traceback = own.read_text(encoding="utf-8")
        return RunError(f"rank {rank} failed first:\n{traceback}", rank, traceback)
    begin = said.find("gyre run: rank ")
    return RunError(f"the job ended with exit code {code}\n{said[max(0, begin) :]}", rank)
