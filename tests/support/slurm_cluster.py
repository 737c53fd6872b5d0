"""A real Slurm cluster on this machine: munged, slurmctld and a slurmd per node, on free ports, in its own folder.

Several nodes are told apart as those of a real cluster are: each has an address of its own (127.0.0.2 and up), and at
FOLDER/local a directory of its own, in a mount namespace of its slurmd, which is FOLDER/nodes/NAME for everybody else.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from machine import free_port
from running_job import wait_until

SERVERS = ("munged", "slurmctld", "slurmd")


def node_names(nodes: int) -> list[str]:
    return [f"n{number}" for number in range(1, nodes + 1)]


def write_configuration(folder: Path, nodes: int, slurmd_timeout: int) -> Path:
    host = socket.gethostname().split(".")[0]
    for name in ("state", "local", *(f"spool-{node}" for node in node_names(nodes))):
        (folder / name).mkdir()
    described = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.{1 if nodes == 1 else number} Port={free_port()} "
        "CPUs=8 RealMemory=1000\n"
        for number, node in enumerate(node_names(nodes), start=2)
    ]
    path = folder / "slurm.conf"
    path.write_text(f"""\
ClusterName=gyre
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=5
SlurmdTimeout={slurmd_timeout}
SchedulerParameters=sched_interval=2,batch_sched_delay=0
{"".join(described)}PartitionName=all Nodes={",".join(node_names(nodes))} Default=YES State=UP
""")
    return path


def start_servers(folder: Path, nodes: int) -> None:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    munged = [
        "munged", "--force", f"--key-file={key}", f"--socket={folder}/munge.sock", f"--pid-file={folder}/munged.pid",
        f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed",
    ]  # fmt: skip
    subprocess.run(munged, check=True, timeout=30)
    subprocess.run(["slurmctld", "-f", str(folder / "slurm.conf")], check=True, timeout=30)
    for node in node_names(nodes):
        (folder / "nodes" / node).mkdir(parents=True)
        start_slurmd(folder, node, nodes)


def start_slurmd(folder: Path, node: str, nodes: int) -> None:
    """As one of so many nodes of the cluster in this folder."""
    one = ["slurmd", "-f", str(folder / "slurm.conf"), "-N", node]
    mount = f'mount --bind "{folder}/nodes/{node}" "{folder}/local" && exec "$@"'
    apart = ["unshare", "--mount", "sh", "-c", mount, "sh", *one]
    subprocess.run(one if nodes == 1 else apart, check=True, timeout=30)


def stop_slurmd(folder: Path, node: str) -> None:
    """What Slurm runs on the node goes on."""
    stop_server(folder, f"slurmd-{node}")


def is_gone(process: Path) -> bool:
    return not process.exists()


def stop_servers(folder: Path, nodes: int) -> None:
    for server in (*(f"slurmd-{node}" for node in node_names(nodes)), "slurmctld", "munged"):
        stop_server(folder, server)


def stop_server(folder: Path, server: str) -> None:
    pid_file = folder / f"{server}.pid"
    if not pid_file.exists():
        return
    process = Path("/proc") / pid_file.read_text().strip()
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(process.name), signal.SIGTERM)
    wait_until(f"{server} ends", partial(is_gone, process))


@contextlib.contextmanager
def slurm_cluster(folder: Path, nodes: int = 1, slurmd_timeout: int = 300) -> Iterator[dict[str, str]]:
    """Yields the environment in which `srun` reaches the cluster. Several nodes need root. `slurmd_timeout`: seconds
    after which Slurm gives a node up whose slurmd does not answer."""
    missing = [server for server in (*SERVERS, "srun") if shutil.which(server) is None]
    if missing:
        pytest.fail(f"not installed: {', '.join(missing)}; run ./dev setup")
    configuration = write_configuration(folder, nodes, slurmd_timeout)
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    try:
        start_servers(folder, nodes)

        def idle() -> bool:
            seen = subprocess.run(
                ["sinfo", "-h", "-N", "-o", "%T"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            return seen.stdout.split() == ["idle"] * nodes

        wait_until("the nodes are idle", idle)
        yield environment
    finally:
        stop_servers(folder, nodes)
