"""A task of a cluster that a program launches itself, by tensorflow_worker_code(): it learns the others' addresses from
a file."""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
import time
from pathlib import Path
from typing import Any

from gyre.errors import InvalidArgumentError
from gyre.workers._objects import OURS, framework_here, make_objects
from gyre.workers._task import drop_empty_proxies

FILE_NAME = "cluster.json"
# Seconds. The file may be on a network file system, which does not report changes.
_BETWEEN_LOOKS = 0.1
_ADDRESS = re.compile(r"[^\s:]+:\d{1,5}")


def run(directory: str, job_name: str, script: str | None) -> None:
    """Waits for the file, and returns what the script's run(cluster, server, task_index) returns. Without a script, and
    as a parameter server, it waits until the process is ended."""
    module = importlib.import_module(script) if script else None  # An error in it needs no cluster to be seen.
    drop_empty_proxies()
    spec = _await_spec(Path(directory) / FILE_NAME)
    index, address = _own_place(spec, job_name)
    host, _, port = address.rpartition(":")
    framework = framework_here()
    listener = socket.socket()
    if framework == OURS:
        listener.bind((host, int(port)))
        listener.listen()
    cluster, server = make_objects(framework, spec, job_name, index, listener)
    if module is None or job_name == "ps":
        server.join()
    else:
        module.run(cluster, server, index)


def _await_spec(file: Path) -> dict[str, list[str]]:
    while not file.exists():
        time.sleep(_BETWEEN_LOOKS)
    try:
        spec: Any = json.loads(file.read_text())
    except ValueError as error:
        raise InvalidArgumentError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(spec, dict) or not all(_are_addresses(tasks) for tasks in spec.values()):
        raise InvalidArgumentError(f'{file} is not a cluster such as {{"worker": ["127.0.0.2:2323"], "ps": []}}')
    return spec


def _are_addresses(tasks: Any) -> bool:
    return isinstance(tasks, list) and all(isinstance(task, str) and _ADDRESS.fullmatch(task) for task in tasks)


def _own_place(spec: dict[str, list[str]], job_name: str) -> tuple[int, str]:
    """The index and the address of this task: the one at this worker's address."""
    own = os.environ.get("CDSW_IP_ADDRESS")
    if own is None:
        raise InvalidArgumentError("CDSW_IP_ADDRESS is not set: this code is for the workers of launch_workers()")
    found = [(i, address) for i, address in enumerate(spec.get(job_name, [])) if address.rpartition(":")[0] == own]
    if len(found) != 1:
        raise InvalidArgumentError(f"the cluster has {len(found)} tasks of the job '{job_name}' at {own}, not one")
    return found[0]
