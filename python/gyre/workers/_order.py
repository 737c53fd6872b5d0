"""What a session orders a worker's keeper to run."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from gyre.workers._keeper import ABSTRACT
from gyre.workers._machine import SESSION_ADDRESS
from gyre.workers._ssh import SshAccess
from gyre.workers._worker import Request, Worker

# What a launcher tells its ranks. A worker is not a rank, though what it starts may be.
_OF_RANKS = {
    *("GYRE_RANK", "GYRE_SIZE", "GYRE_SERVERS", "GYRE_LOCAL_RANK", "GYRE_LOCAL_SIZE", "GYRE_RENDEZVOUS"),
    *("GYRE_RENDEZVOUS_FD", "GYRE_KEY_FD", "GYRE_FAILURE_FD", "GYRE_ENDED_FD", "GYRE_METRICS_FD", "GYRE_LAUNCH"),
    "GYRE_JOB_METRICS",
    *("RANK", "WORLD_SIZE"),
    *("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
    *("TORCHELASTIC_USE_AGENT_STORE", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    *("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"),
}
# What a program that is started in a worker through ssh gets of the worker's environment, besides `env`.
_THROUGH_SSH = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV")
_OF_PLATFORM = ("CDSW_", "CML_")


SOCKET = "control"


def jobs_socket(session: str) -> str:
    """Where jobs reach the session. The name is in no folder, so that jobs in containers find it, which are on this
    machine's network, and other users, as whom jobs run."""
    return f"{ABSTRACT}gyre-workers-{session}"


def make_order(worker: Worker, session: str, folder: Path, ssh: SshAccess | None) -> dict[str, Any]:
    """As _keeper.py reads it. `session`, `folder`: the session's id and its folder."""
    request = worker.request
    in_job = request.place is not None
    variables = _variables(worker, session)
    environment = {name: value for name, value in os.environ.items() if name not in _OF_RANKS} | variables
    sshd = None
    if request.ssh and ssh is not None:
        through = {name: environment[name] for name in _THROUGH_SSH if name in environment}
        through |= {name: value for name, value in variables.items() if name.startswith(_OF_PLATFORM)}
        sshd = ssh.order(worker.id, worker.address, {**through, **request.environment})
    control = jobs_socket(session) if in_job else str(folder / SOCKET)
    container = request.container
    return {
        "command": _command(request, worker.id, worker.address, control),
        # A job has its own environment: this process's may hold what the job's user must not see.
        "environment": None if in_job else environment,
        "dropped": sorted(_OF_RANKS),
        "variables": variables,
        "is_task": request.task is not None,
        "folder": os.getcwd() if container is None or container.folder else None,
        "shared": [container.folder, container.mount] if container is not None and container.folder else None,
        "session_folder": str(folder),
        "cgroups": worker.limits.cgroups,
        "data_bytes": worker.limits.data_bytes,
        "cores": worker.limits.cores,
        "sshd": sshd,
    }


def _import_path(within: str = "/") -> list[str]:
    """What this process can import from, without what belongs to its Python: a worker's may be another one."""
    own = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    entries = [os.path.abspath(entry) for entry in sys.path if not entry.endswith(".zip")]
    places = {entry: Path(entry).resolve() for entry in entries if Path(entry).is_relative_to(within)}
    return [entry for entry, place in places.items() if not any(place.is_relative_to(one) for one in own)]


def _python_path(request: Request) -> dict[str, str]:
    """An image may have one of its own, which stays where it could only lose."""
    if request.container is None:
        return {"PYTHONPATH": os.pathsep.join(_import_path())}
    seen = _import_path(request.container.folder) if request.container.folder else []
    return {"PYTHONPATH": os.pathsep.join(seen)} if seen else {}


def _command(request: Request, worker: str, address: str, control: str) -> list[str]:
    if request.task is None:
        return list(request.command or ["sleep", "infinity"])
    program = [request.python, "-u", "-m", "gyre.workers._task", control, worker]
    return [*program, request.role, str(request.index), address, *request.task]


def _variables(worker: Worker, session: str) -> dict[str, str]:
    request = worker.request
    variables = {
        **_python_path(request),
        "PYTHONUNBUFFERED": "1",
        "CDSW_ENGINE_ID": worker.id,
        "CDSW_MASTER_ID": session,
        "CDSW_MASTER_IP": SESSION_ADDRESS,
        "CML_MASTER_IP": SESSION_ADDRESS,
        "CDSW_IP_ADDRESS": worker.address,
        "CDSW_CPU_MILLICORES": str(int(request.cpu * 1000)),
        "CDSW_MEMORY_MB": str(int(request.memory * 1024)),
    }
    if request.place is None:  # Its job has the variable.
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(worker.gpus)
    if not os.environ.get("OMP_NUM_THREADS"):
        variables["OMP_NUM_THREADS"] = str(max(1, int(request.cpu)))
    return {**variables, **request.environment}
