"""One list for every engine that gives nodes to jobs, on hosts and in containers: docs/testing.md has what came of it.

It takes minutes for each, so that it is a part of `./dev nightly long`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from effort import is_long
from images import Storage, busybox_files
from job_server import JobServer
from running_job import wait_until
from slurm_cluster import slurm_cluster
from ssh_cluster import ssh_cluster

__test__ = is_long()
pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("sshd", "slurmctld", "podman", "runc")]

ENGINES = ("local", "ssh", "slurm")
ON_HOSTS = [f"{engine}-host" for engine in ENGINES]
EVERYWHERE = [f"{engine}-{where}" for engine in ENGINES for where in ("host", "container")]
SHARE = "$AZ_BATCHAI_MOUNT_ROOT/external"
LEASE = "5"
SHORT_JOBS = 50
CODE_BYTES = 100_000_000
everywhere = pytest.mark.parametrize("place", EVERYWHERE, indirect=True, scope="module")
on_hosts = pytest.mark.parametrize("place", ON_HOSTS, indirect=True, scope="module")


@dataclass
class Place:
    """A server with a cluster `lab` of two nodes."""

    server: JobServer
    storage: Storage
    contained: bool
    roots: Callable[[], list[Path]]  # The folders of nodes that have a job.
    mark: str  # In the environment of all that jobs start.

    def submit(self, name: str, properties: dict[str, Any], *options: str) -> None:
        variable, value = self.mark.split("=")
        whole = {
            "nodeCount": 2,
            "stdOutErrPathPrefix": SHARE,
            "environmentVariables": [{"name": variable, "value": value}],
            **properties,
        }
        if self.contained:
            whole["containerSettings"] = {"imageSourceRegistry": {"image": "localhost/gyre-test/engines:1"}}
        file = self.server.job_file(whole, f"{name}.json")
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


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, gyre: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    engine, where = request.param.split("-")
    folder = Path(tempfile.mkdtemp(prefix="gyre-engine-"))
    folder.chmod(0o755)
    server = JobServer(gyre, tmp_path_factory.mktemp("server"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        storage = Storage(folder / "containers")
        stack.callback(storage.remove)
        storage.add("gyre-test/engines:1", busybox_files())
        server.environment["GYRE_CONTAINERS"] = str(storage.folder)
        settings: dict[str, Any] = {"mounts": {"external": str(server.share)}}
        options = {"address": "127.0.0.1", "lease_seconds": LEASE, "node_folder": str(folder / "engine" / "local")}
        if engine == "ssh":
            variables = {"GYRE_CONTAINERS": str(storage.folder)}
            hosts = stack.enter_context(ssh_cluster(folder / "engine", 2, variables))
            keys = ", ".join(f"{name} {hosts.fingerprint(name)}" for name in hosts.names)
            options |= {"hosts": ", ".join(hosts.names), "host_keys": keys, "ssh_config": str(hosts.config)}
        if engine == "slurm":
            (folder / "engine").mkdir()
            environment = stack.enter_context(slurm_cluster(folder / "engine", nodes=2))
            server.environment["SLURM_CONF"] = environment["SLURM_CONF"]
        if engine != "local":
            settings |= {"driver": engine, "driverOptions": options}
        stack.callback(server.close)
        server.start("--lease", LEASE)
        file = server.tmp_path / "cluster.json"
        file.write_text(json.dumps({"properties": {"vmSize": "any", "gyreSettings": settings}}))
        server.ok("cluster", "create", "lab", "-f", str(file), "--target", "2")

        def roots() -> list[Path]:
            if engine == "local":  # Nodes outlive jobs.
                return [file.parents[1] for file in server.folder.glob("nodes/*/agent/current.json")]
            return list(folder.glob("engine/nodes/*/gyre-*"))

        yield Place(server, storage, where == "container", roots, f"GYRE_TEST_ENGINES={uuid.uuid4().hex}")


@on_hosts
def test_digits_are_learnt_by_two_ranks_on_each_of_two_nodes(
    place: Place, gyre: Path, digits: dict[str, bytes]
) -> None:
    """From a job file. (The program needs libtorch, which the image does not have.)"""
    for name, content in digits.items():
        path = place.server.share / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    program = [str(gyre.with_name("gyre-cifar10")), "--data-dir", f"{SHARE}/data", "--epochs", "1", "--batch-size", "8"]
    place.submit("digits", {"gyreSettings": {"program": program, "processesPerNode": 2}})
    assert place.wait_for("digits") == 0, place.events("digits")
    assert "test accuracy" in place.server.ok("job", "logs", "digits")
    place.expect_nothing_left()


@everywhere
def test_a_log_is_followed_while_its_job_runs(place: Place) -> None:
    line = f"echo early; until [ -e {SHARE}/followed ]; do sleep 0.05; done; echo late"
    place.submit("followed", {"customToolkitSettings": {"commandLine": line}})
    follower = place.server.start_verb("job", "logs", "-f", "followed")
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"early\n"
    (place.server.share / "followed").touch()
    assert follower.communicate(timeout=60)[0] == b"late\n"
    assert place.wait_for("followed") == 0
    place.expect_nothing_left()


@everywhere
def test_a_rank_that_is_killed_ends_the_others(place: Place) -> None:
    place.submit("killed", place.ranks('if [ "$GYRE_RANK" = 3 ]; then kill -9 $$; fi; sleep 1000'))
    assert place.wait_for("killed") == 137
    assert "the job's command failed" in place.events("killed")
    place.expect_nothing_left()


@everywhere
def test_a_job_whose_node_is_lost_runs_again(place: Place) -> None:
    line = f"[ ! -e {SHARE}/lost ] || exit 0; mkdir {SHARE}/up-$GYRE_RANK; sleep 1000"
    place.submit("lost", place.ranks(line))
    wait_until("four ranks run", lambda: len(list(place.server.share.glob("up-*"))) == 4)
    (place.server.share / "lost").touch()
    lock = place.roots()[0] / "agent.lock"
    os.kill(int(lock.read_text()), signal.SIGSTOP)
    assert place.wait_for("lost") == 0, place.events("lost")
    assert "attempt 2" in place.events("lost")
    place.expect_nothing_left()


@everywhere
def test_a_job_goes_on_while_the_server_is_killed_and_starts_again(place: Place) -> None:
    line = f"touch() {{ : > $1; }}; touch {SHARE}/runs; until [ -e {SHARE}/go ]; do sleep 0.05; done; echo over; exit 3"
    place.submit("restart", {"customToolkitSettings": {"commandLine": line}})
    wait_until("the job runs", (place.server.share / "runs").exists)
    wait_until("the server knows", lambda: "all nodes are prepared" in place.events("restart"))
    place.server.end(signal.SIGKILL)
    place.server.start("--lease", LEASE)
    (place.server.share / "go").touch()
    assert place.wait_for("restart") == 3, place.events("restart")
    assert "over\n" in place.server.ok("job", "logs", "restart")
    place.expect_nothing_left()


@everywhere
def test_a_job_is_cancelled_while_it_waits_prepares_and_runs(place: Place) -> None:
    waits = "sleep 1000"
    preparing = {"jobPreparation": {"commandLine": f"mkdir -p {SHARE}/preparing; sleep 1000"}}
    for phase, properties, file in (
        ("prepares", {**place.ranks("true"), **preparing}, "preparing"),
        ("runs", place.ranks(f"mkdir -p {SHARE}/running; {waits}"), "running"),
    ):
        place.submit(phase, properties)
        wait_until(f"the job {phase}", (place.server.share / file).exists)
        if phase == "runs":
            place.submit("queued", place.ranks("true"))
            place.server.ok("job", "stop", "queued")
            assert place.wait_for("queued") != 0
        place.server.ok("job", "stop", phase)
        assert place.wait_for(phase) != 0
        place.expect_nothing_left()


@everywhere
def test_a_hundred_megabytes_of_code_come_to_both_nodes(place: Place, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "weights").write_bytes(os.urandom(CODE_BYTES))
    line = 'echo "size $(stat -c %s weights)"'
    place.submit("code", place.ranks(line), "--code", str(tmp_path / "code"))
    assert place.wait_for("code") == 0, place.events("code")
    assert place.server.ok("job", "logs", "code").count(f"size {CODE_BYTES}") == 4
    place.expect_nothing_left()


@everywhere
def test_fifty_short_jobs_all_succeed(place: Place) -> None:
    names = [f"short-{number}" for number in range(SHORT_JOBS)]
    for name in names:
        place.submit(name, {"nodeCount": 1, "customToolkitSettings": {"commandLine": "true"}})
    assert [place.wait_for(name) for name in names] == [0] * SHORT_JOBS
    place.expect_nothing_left()
