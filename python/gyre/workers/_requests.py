"""Checking what callers of the workers API ask for, and turning it into commands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from gyre.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from gyre.workers._worker import JobPlace

MOST_WORKERS = 1000
_LONGEST_CODE = 100_000  # Linux limits one argument of a program to 128 KB.
_KERNELS = ("python3", "python")
_SHELL_LINE = re.compile(r"^(\s*)!(.*)$", re.MULTILINE)


def check_resources(cpu: float, memory: float, nvidia_gpu: int) -> None:
    """InvalidArgumentError."""
    for name, value, unit in (("cpu", cpu, "cores"), ("memory", memory, "GB")):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise InvalidArgumentError(f"{name} is {value!r}; a number of {unit} above 0 is needed")
    check_count("nvidia_gpu", nvidia_gpu, 0)


def check_count(name: str, value: int, fewest: int) -> None:
    """InvalidArgumentError."""
    if isinstance(value, bool) or not isinstance(value, int) or not fewest <= value <= MOST_WORKERS:
        raise InvalidArgumentError(f"{name} is {value!r}; a whole number from {fewest} to {MOST_WORKERS} is needed")


def check_timeout(name: str, seconds: float) -> None:
    """InvalidArgumentError."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise InvalidArgumentError(f"{name} is {seconds!r}; a number of seconds is needed, or 0 for no timeout")


def check_environment(env: Mapping[str, str]) -> dict[str, str]:
    """InvalidArgumentError."""
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise InvalidArgumentError(f"env has {name!r}: {value!r}; names and values must be strings")
    return dict(env)


def job_place(server: str | None, cluster: str | None, contained: bool) -> JobPlace | None:
    """None: this machine, without a job server, which containers need. InvalidArgumentError."""
    for name, value in (("server", server), ("cluster", cluster)):
        if value is not None:
            _check_text(name, value)
    if server is None and not contained:
        if cluster is not None:
            raise InvalidArgumentError(f"cluster is '{cluster}', and no server is named whose cluster it is")
        return None
    return JobPlace(os.fspath(server) if server is not None else None, cluster)


def command_of(python: str, kernel: str, script: str, code: str) -> list[str] | None:
    """What the worker runs: the script, else the code, else nothing. NotFoundError if there is no such script;
    InvalidArgumentError, UnsupportedError."""
    if kernel.lower() not in _KERNELS:
        raise UnsupportedError(f"kernel is '{kernel}'; workers run Python 3 (kernel=\"python3\")")
    _check_text("code", code)
    if script:
        _check_text("script", script)
        script = os.fspath(script)
        if not Path(script).is_file():
            raise NotFoundError(f"there is no script {script} in {Path.cwd()}")
        # Python takes what begins with "-" as an option.
        return [python, "-u", f"./{script}" if script.startswith("-") else script]
    if not code:
        return None
    text = _SHELL_LINE.sub(_run_in_shell, code)
    if len(text.encode()) > _LONGEST_CODE:
        raise InvalidArgumentError(f"code has {len(code)} characters; put so much into a file and give it as script")
    return [python, "-u", "-c", text]


def _check_text(name: str, value: object) -> None:
    """InvalidArgumentError."""
    if not isinstance(value, str | os.PathLike):
        raise InvalidArgumentError(f"{name} is {value!r}; a text is needed")


def _run_in_shell(line: re.Match[str]) -> str:
    """`!command` of a notebook. A command that fails raises an error."""
    return f"{line[1]}__import__('subprocess').run({line[2]!r}, shell=True, check=True)"
