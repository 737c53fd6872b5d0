"""A real Slurm cluster of one node on this machine: munged, slurmctld, slurmd, on free ports, in its own folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import free_port
from running_job import wait_until

SERVERS = ("munged", "slurmctld", "slurmd")


def write_configuration(folder: Path) -> Path:
    host = socket.gethostname().split(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    path = folder / "slurm.conf"
    path.write_text(f"""\
ClusterName=gyre
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
MpiDefault=none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=8 RealMemory=1000
PartitionName=all Nodes=n1 Default=YES State=UP
""")
    return path


def start_servers(folder: Path, configuration: Path) -> None:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    munged = [
        "munged", "--force", f"--key-file={key}", f"--socket={folder}/munge.sock", f"--pid-file={folder}/munged.pid",
        f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed",
    ]  # fmt: skip
    subprocess.run(munged, check=True, timeout=30)
    subprocess.run(["slurmctld", "-f", str(configuration)], check=True, timeout=30)
    subprocess.run(["slurmd", "-f", str(configuration), "-N", "n1"], check=True, timeout=30)


def stop_servers(folder: Path) -> None:
    for server in reversed(SERVERS):
        pid_file = folder / f"{server}.pid"
        if not pid_file.exists():
            continue
        pid = int(pid_file.read_text())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        wait_until(f"{server} ends", lambda pid=pid: not Path(f"/proc/{pid}").exists())


@contextlib.contextmanager
def slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Yields the environment in which `srun` reaches the cluster."""
    missing = [server for server in (*SERVERS, "srun") if shutil.which(server) is None]
    if missing:
        pytest.fail(f"not installed: {', '.join(missing)}; run ./dev setup")
    configuration = write_configuration(folder)
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    try:
        start_servers(folder, configuration)

        def idle() -> bool:
            seen = subprocess.run(
                ["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True, timeout=30, check=False
            )
            return seen.stdout.strip() == "idle"

        wait_until("the node is idle", idle)
        yield environment
    finally:
        stop_servers(folder)
