"""A job server with a cluster of two nodes on an engine of any kind, whose jobs run on hosts or in containers."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker_daemon import DockerHosts, DockerStorage
from images import Storage, busybox_files
from job_server import JobServer
from running_job import wait_until
from slurm_cluster import node_names, slurm_cluster
from ssh_cluster import SshCluster, ssh_cluster

ENGINES = ("local", "ssh", "slurm")
IMAGE = "localhost/gyre-test/engines:1"
DIGITS_IMAGE = "localhost/gyre-test/digits:1"
SHARE = "$AZ_BATCHAI_MOUNT_ROOT/external"
LEASE = "5"


@dataclass
class Place:
    """A server with a cluster `lab` of two nodes."""

    server: JobServer
    storage: Storage | DockerStorage | DockerHosts
    contained: bool
    roots: Callable[[], list[Path]]  # The folders of nodes that have a job.
    mark: str  # In the environment of all that jobs start.
    hosts: SshCluster | None  # Of the engine ssh.
    slurm: Path | None  # The folder of the engine slurm.

    def job_file(self, name: str, properties: dict[str, Any], image: str = IMAGE) -> Path:
        variable, value = self.mark.split("=")
        whole = {
            "nodeCount": 2,
            "stdOutErrPathPrefix": SHARE,
            "environmentVariables": [{"name": variable, "value": value}],
            **properties,
        }
        if self.contained:
            whole["containerSettings"] = {"imageSourceRegistry": {"image": image}}
        return self.server.job_file(whole, f"{name}.json")

    def submit(self, name: str, properties: dict[str, Any], *options: str, image: str = IMAGE) -> None:
        """`image`: where its jobs run in containers."""
        file = self.job_file(name, properties, image)
        self.server.ok("job", "submit", str(file), "--cluster", "lab", "--name", name, *options)

    def ranks(self, line: str) -> dict[str, Any]:
        """Two on each node."""
        return {"gyreSettings": {"program": ["sh", "-c", line], "processesPerNode": 2}}

    def wait_for(self, name: str) -> int:
        return self.server.verb("job", "wait", name, seconds=300).returncode

    def events(self, name: str) -> str:
        return self.server.ok("job", "events", name)

    def expect_nothing_left(self) -> None:
        wait_until("no container is left", lambda: self.storage.containers() == [])
        wait_until("no process is left", lambda: processes_with(self.mark) == [])
        wait_until("no folder is left", lambda: self.roots() == [])


def processes_with(entry: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if entry.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
        except OSError:
            continue
    return found


def host_processes(engine: Path, hosts: SshCluster | None) -> dict[int, Path]:
    """A process of each host that has a mount namespace of its own, with the host's own folder."""
    if hosts is not None:
        return {hosts.servers[name].pid: hosts.local(name) for name in hosts.names}
    nodes = {name: engine / "nodes" / name for name in node_names(2)}
    return {int((engine / f"slurmd-{name}.pid").read_text()): own for name, own in nodes.items()}


@contextmanager
def place_on(
    engine: str,
    containers: str,
    gyre: Path,
    tmp_path: Path,
    programs: Path | None = None,
    slurmd_timeout: int = 300,
) -> Iterator[Place]:
    """`containers`: "podman", "docker", or empty. `tmp_path`: a new folder. `programs`: what the server finds in it
    comes before the machine's. `slurmd_timeout`: see slurm_cluster()."""
    folder = Path(tempfile.mkdtemp(prefix="gyre-engine-"))
    folder.chmod(0o755)
    server = JobServer(gyre, tmp_path)
    if programs is not None:
        server.environment["PATH"] = f"{programs}:{server.environment['PATH']}"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        podman = None if containers == "docker" else Storage(folder / "containers")
        if podman is not None:
            stack.callback(podman.remove)
        on_hosts = podman.settings if podman is not None else DockerHosts.settings_at(folder / "engine" / "local")
        server.environment |= on_hosts
        settings: dict[str, Any] = {"mounts": {"external": str(server.share)}}
        options = {"address": "127.0.0.1", "lease_seconds": LEASE, "node_folder": str(folder / "engine" / "local")}
        hosts: SshCluster | None = None
        if engine == "ssh":
            variables = {**on_hosts, "PATH": server.environment["PATH"]}
            hosts = stack.enter_context(ssh_cluster(folder / "engine", 2, variables))
            options = hosts.driver_options(**options)
        slurm = folder / "engine" if engine == "slurm" else None
        if slurm is not None:
            slurm.mkdir()
            environment = stack.enter_context(slurm_cluster(slurm, 2, slurmd_timeout))
            server.environment["SLURM_CONF"] = environment["SLURM_CONF"]
        if engine != "local":
            settings |= {"driver": engine, "driverOptions": options}
        storage: Storage | DockerStorage | DockerHosts
        if podman is not None:
            storage = podman
        elif engine == "local":
            (folder / "docker").mkdir()
            storage = DockerStorage(folder / "docker")
            server.environment |= storage.settings
        else:
            storage = DockerHosts(folder / "engine" / "local", host_processes(folder / "engine", hosts))
        if podman is None:
            stack.callback(storage.remove)
        storage.add(IMAGE.removeprefix("localhost/"), busybox_files())
        stack.callback(server.close)
        server.start("--lease", LEASE)
        file = server.tmp_path / "cluster.json"
        file.write_text(json.dumps({"properties": {"vmSize": "any", "gyreSettings": settings}}))
        server.ok("cluster", "create", "lab", "-f", str(file), "--target", "2")

        def roots() -> list[Path]:
            if engine == "local":  # Nodes outlive jobs.
                return [file.parents[1] for file in server.folder.glob("nodes/*/agent/current.json")]
            return list(folder.glob("engine/nodes/*/gyre-*"))

        yield Place(server, storage, containers != "", roots, f"GYRE_TEST_ENGINES={uuid.uuid4().hex}", hosts, slurm)
