"""launch_workers, await_workers, list_workers, stop_workers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gyre.errors import InvalidArgumentError
from gyre.workers import _session
from gyre.workers._containers import PYTHON, Image, container_of
from gyre.workers._requests import check_count, check_environment, check_resources, check_timeout, command_of, job_place
from gyre.workers._worker import UNKNOWN, Request, Worker

Description = dict[str, Any]
Id = str | int | Mapping[str, Any]


def launch_workers(
    n: int,
    cpu: float,
    memory: float,
    nvidia_gpu: int = 0,
    kernel: str = "python3",
    script: str = "",
    code: str = "",
    env: Mapping[str, str] | None = None,
    *,
    name: str = "worker",
    ssh: bool = True,
    python: str | None = None,
    server: str | None = None,
    cluster: str | None = None,
    image: Image | None = None,
    accelerator_label_id: int | None = None,  # noqa: ARG001  Newer versions of the API have these three;
    resource_profile_id: int | None = None,  # noqa: ARG001  there is nothing here to choose from.
    resource_group_id: int | None = None,  # noqa: ARG001
) -> list[Description]:
    """Launches `n` workers with `cpu` cores, `memory` GB and `nvidia_gpu` GPUs each. Returns their descriptions without
    waiting for them to run.

    A worker runs `script`, a Python file, else `code`, in which lines that begin with `!` are for the shell, else
    nothing until it is stopped. `env`: variables for it. Its output appears here, each line with its id in front. It
    ends with this process at the latest. `ssh`: whether it can be logged in to, at its ip_address and ssh_port.
    `python`: the interpreter, by default that of this process.

    `server`: a job server (as in gyre.jobs.Client) whose nodes are this machine's. Each worker is then a job of one
    node in its `cluster`, without ssh, and waits with the status "scheduling" until there is a node.

    `image`: of the container in which each worker, then a job, runs: a name, or all that "containerSettings" of a job
    file have. `server` is by default the one that the commands of `gyre` find, `python` the image's "python3". The
    folder from which you launch has its own path in the container, if it is in one that the cluster mounts.

    A worker that cannot be launched has the status "failed" and a message. InvalidArgumentError, NotFoundError (no such
    script) and UnsupportedError (another kernel) are raised before anything is launched. Thread-safe.
    """
    check_count("n", n, 1)
    check_resources(cpu, memory, nvidia_gpu)
    environment = check_environment(env or {})
    python = python or (sys.executable if image is None else PYTHON)
    command = command_of(python, kernel, script, code)
    place = job_place(server, cluster, contained=image is not None)
    container = container_of(image, place, nvidia_gpu, script)
    session = _session.current()
    ssh = ssh and place is None
    request = Request(
        command, environment, cpu, memory, nvidia_gpu, ssh, name, place=place, python=python, container=container
    )  # fmt: skip
    workers = [session.launch(replace(request, index=index)) for index in range(n)]
    with session.changed:
        return [worker.describe() for worker in workers]


def list_workers() -> list[Description]:
    """All workers that this process has launched, in the order of their launch, those that have ended included."""
    session = _session.existing()
    if session is None:
        return []
    with session.changed:
        return [worker.describe() for worker in session.workers()]


def stop_workers(*worker_ids: Id | Iterable[Id]) -> list[Description]:
    """Stops these workers, given by id, description or lists of them; without an argument all of them. An empty list
    stops none. Returns their descriptions when they have ended: after SIGTERM, or 5 s later SIGKILL. Workers that have
    already ended keep their status. InvalidArgumentError for an id that no worker has, before any is stopped."""
    session = _session.existing()
    if session is None:
        if any(_flat(worker_ids)):
            raise InvalidArgumentError("this process has launched no workers")
        return []
    workers = [_find(session, one) for one in _flat(worker_ids)] if worker_ids else session.workers()
    session.stop(workers)
    with session.changed:
        return [worker.describe() for worker in workers]


def await_workers(
    ids: Id | Iterable[Id] | None = None,
    wait_for_completion: bool = True,
    timeout_seconds: float = 60,
    *,
    fail_fast: bool = False,
    min_workers: int | None = None,
) -> dict[str, list[Description]]:
    """Waits until these workers (by default all) have succeeded, or, without `wait_for_completion`, until they run and
    have an ip_address. Returns {"workers": descriptions of those that have, "failures": entries for the others}, each
    in the order of `ids`; every id is in exactly one of the lists.

    `timeout_seconds`: for all of them together; 0: no timeout. It does not stop any worker. `fail_fast`: returns at the
    first failure. `min_workers`: returns as soon as this many have reached the goal. A failure is a description with
    `phase` (launch, schedule, start, run or timeout), `host`, `last_log_lines` and `message`.
    """
    check_timeout("timeout_seconds", timeout_seconds)
    if min_workers is not None:
        check_count("min_workers", min_workers, 1)
    deadline = time.monotonic() + timeout_seconds if timeout_seconds > 0 else None
    session = _session.current()
    keys = list(_flat([ids])) if ids is not None else [worker.id for worker in session.workers()]
    found = {key: session.find(key) for key in keys}
    workers = [worker for worker in found.values() if worker is not None]
    is_good = _succeeded if wait_for_completion else _runs

    def finished() -> bool:
        bad = sum(1 for worker in workers if worker.has_ended and not is_good(worker))
        good = sum(1 for worker in workers if is_good(worker))
        bad_ids = bad + len(found) - len(workers)
        return good + bad == len(workers) or (fail_fast and bad_ids > 0) or (min_workers or len(keys) + 1) <= good

    in_time = session.wait(finished, deadline)
    with session.changed:
        return _sort(found, is_good, f"{timeout_seconds:g} s" if not in_time else "")


def _sort(
    found: Mapping[str, Worker | None], is_good: Callable[[Worker], bool], timeout: str
) -> dict[str, list[Description]]:
    result: dict[str, list[Description]] = {"workers": [], "failures": []}
    for key, worker in found.items():
        if worker is None:
            result["failures"].append(_unknown(key))
        elif is_good(worker):
            result["workers"].append(worker.describe())
        elif worker.has_ended:
            result["failures"].append(worker.failure())
        else:
            reason = f"after {timeout}" if timeout else "when the wait ended because of other workers"
            phase = "timeout" if timeout else None
            result["failures"].append(worker.failure(phase, f"it was still {worker.status} {reason}"))
    return result


def _succeeded(worker: Worker) -> bool:
    return worker.status == "succeeded"


def _runs(worker: Worker) -> bool:
    """One that has already succeeded has been running."""
    return worker.status in ("running", "succeeded")


def _unknown(key: str) -> Description:
    """The failure of an id that no worker has."""
    request = Request(None, {}, 0, 0)
    worker = Worker(key, request, UNKNOWN, key, status=UNKNOWN)
    return worker.failure("launch", f"this process has launched no worker with the id {key}")


def _flat(ids: Iterable[Id | Iterable[Id]]) -> Iterable[str]:
    for one in ids:
        if isinstance(one, str | int):
            yield str(one)
        elif isinstance(one, Mapping):
            if "id" not in one:
                raise InvalidArgumentError(f"{dict(one)!r} does not describe a worker: it has no id")
            yield str(one["id"])
        elif isinstance(one, Iterable):
            yield from _flat(one)
        else:
            raise InvalidArgumentError(f"{one!r} is neither a worker's id nor its description")


def _find(session: _session.Session, key: str) -> Worker:
    worker = session.find(key)
    if worker is None:
        raise InvalidArgumentError(f"this process has launched no worker with the id {key}")
    return worker
