"""horovod.runner: functions and scripts as jobs."""

from __future__ import annotations

import os
import re
import socket
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gyre.errors import InvalidArgumentError, UnsupportedError
from gyre.launch.function import run as run_function
from gyre.launch.program import find_program

__all__ = ["run", "run_commandline"]

_OLD_NAMES = {"np": "num_proc", "min_np": "min_num_proc", "max_np": "max_num_proc"}
_ELASTIC = ("min_num_proc", "max_num_proc", "slots", "reset_limit", "cooldown_range", "host_discovery_script")


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Any = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: Any = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """`horovod.run` under Gyre: gyre.run() with Horovod's argument names. Calls func(*args, **kwargs) on
    `num_proc` ranks of this host; returns their results in rank order. RunError (a RuntimeError) when a rank fails.

    `hosts` and `hostfile` can only name this host: UnsupportedError for others, on which `gyre run -H` starts scripts.
    There is no elastic training. Arguments about MPI, Gloo and ssh have no effect.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    for old, new in _OLD_NAMES.items():
        if old in given:
            warnings.warn(f"{old} is deprecated: use {new}", DeprecationWarning, stacklevel=2)
            given[new] = given.pop(old)
    _check(given)
    options = ["--horovod-compat"]  # The function itself imports horovod.torch too.
    if output_filename is not None:
        options += ["--log-dir", output_filename]
    env = None if start_timeout is None else {"GYRE_START_TIMEOUT_SECONDS": str(start_timeout)}
    return run_function(func, args, kwargs, np=int(given.get("num_proc", 1)), env=env, options=options)


def _check(given: Mapping[str, Any]) -> None:
    if "hosts" in given and "hostfile" in given:
        raise InvalidArgumentError("horovod.run(): give either hosts or hostfile, not both")
    if given.get("use_gloo") and given.get("use_mpi"):
        raise InvalidArgumentError("horovod.run(): give either use_gloo or use_mpi, not both")
    elastic = [name for name in _ELASTIC if name in given]
    if elastic:
        raise UnsupportedError(
            f"horovod.run() under Gyre does not take {', '.join(elastic)}: there is no elastic training, the "
            "ranks of a job do not change"
        )
    if given.get("executable", sys.executable) != sys.executable:
        raise UnsupportedError(
            f"horovod.run() under Gyre runs functions with this Python ({sys.executable}), not with "
            f"{given['executable']}"
        )
    if "hosts" in given or "hostfile" in given:
        _check_hosts(_slots_of(given.get("hosts"), given.get("hostfile")), int(given.get("num_proc", 1)))


def _slots_of(hosts: str | None, hostfile: str | None) -> list[tuple[str, int]]:
    """(host, slots), of `hosts` as "a:4,b:4" or of lines "a slots=4"."""
    if hosts is None:
        lines = Path(str(hostfile)).read_text().splitlines()
        words = [line.split("#")[0].strip() for line in lines]
        pattern = r"(\S+?)(?:\s+slots\s*=\s*(\d+))?"
    else:
        words = [word.strip() for word in hosts.split(",")]
        pattern = r"([^:\s]+)(?::(\d+))?"
    pairs = []
    for word in filter(None, words):
        match = re.fullmatch(pattern, word)
        if match is None:
            raise InvalidArgumentError(f"horovod.run(): {word!r} does not name a host and its slots")
        pairs.append((match.group(1), int(match.group(2) or 1)))
    return pairs


def _check_hosts(pairs: Sequence[tuple[str, int]], ranks: int) -> None:
    name = socket.gethostname()
    here = {"localhost", "127.0.0.1", "::1", name, name.partition(".")[0]}
    others = sorted({host for host, _ in pairs if host not in here})
    if others:
        raise UnsupportedError(
            f"horovod.run() under Gyre does not take hosts: {', '.join(others)}; it starts the ranks of a function on "
            "this host; start a script on several with `gyre run -H host1:4,host2:4 -- python train.py`"
        )
    slots = sum(count for _, count in pairs)
    if slots < ranks:
        raise InvalidArgumentError(f"horovod.run(): the hosts have {slots} slots, but num_proc is {ranks}")


def run_commandline() -> NoReturn:
    """Called by `horovodrun`: this process becomes `gyre run --horovod-compat` with its own arguments."""
    program = str(find_program())
    os.execv(program, [program, "run", "--horovod-compat", *sys.argv[1:]])
