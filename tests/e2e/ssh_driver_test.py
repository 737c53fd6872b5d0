"""Jobs on hosts that a job server reaches by ssh alone: real sshd, with nothing of Gyre on the hosts before."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_server import JobServer
from job_shells import expect_shells_on
from running_job import wait_until
from ssh_cluster import SshCluster, ssh_cluster

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("sshd", "ssh", "ssh-keygen")]

FROM_THE_SUITE = (
    "a_lost_node_ends_the_attempt_on_the_others",
    "a_service_that_restarts_early_finds_its_attempts_again",
)
SHARE = "$AZ_BATCHAI_MOUNT_ROOT/external"


@pytest.fixture(scope="module")
def hosts() -> Iterator[SshCluster]:
    """A short folder that the jobs' user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="gyre-ssh-"))
    try:
        with ssh_cluster(folder, hosts=3) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server(gyre: Path, hosts: SshCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServer]:
    server = JobServer(gyre, tmp_path_factory.mktemp("server"))
    try:
        server.start()
        server.ok(
            "cluster", "create", "lab", "-f", str(hosts.write_cluster(server.tmp_path, server.share)), "--target", "3"
        )
        yield server
    finally:
        server.close()


def suite() -> Path:
    found = shutil.which("gyre")
    root = Path(found).resolve().parent.parent if found else Path(__file__).parents[2] / "build" / "release"
    return root / "gyre" / "jobs" / "drivers" / "gyre_jobs_ssh_test"


@pytest.mark.parametrize("name", FROM_THE_SUITE)
def test_the_suite_of_all_drivers(hosts: SshCluster, name: str) -> None:
    """What connections and restarts could break; the program has the whole suite."""
    done = subprocess.run(
        [suite(), f"--gtest_filter=*.{name}"],
        env={**os.environ, "GYRE_TEST_SSH": str(hosts.folder), "GYRE_TEST_SSH_KEYS": hosts.host_keys()},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "[  PASSED  ] 1 test." in done.stdout


def submit(server: JobServer, name: str, line: str, nodes: int = 2) -> None:
    file = server.job_file(server.custom(line, nodes=nodes))
    server.ok("job", "submit", str(file), "--cluster", "lab", "--name", name)


def roots_of_jobs(hosts: SshCluster) -> list[Path]:
    return [path for name in hosts.names for path in hosts.local(name).glob("gyre-*")]


def processes_with(words: str) -> list[str]:
    return subprocess.run(["pgrep", "-f", words], capture_output=True, text=True, check=False).stdout.split()


def expect_nothing_left(hosts: SshCluster) -> None:
    wait_until("the hosts are clean", lambda: not roots_of_jobs(hosts))
    wait_until("no agent is left", lambda: not processes_with(str(hosts.folder / "local" / "gyre-")))


def test_a_job_of_two_hosts_and_two_ranks_each_runs_and_leaves_nothing(hosts: SshCluster, server: JobServer) -> None:
    """The whole way: program copied, agents started, logs followed, and only the copy stays."""
    spec = {
        "nodeCount": 2,
        "gyreSettings": {"processesPerNode": 2, "program": ["sh", "-c", "echo rank $GYRE_RANK of $GYRE_SIZE"]},
    }
    file = server.job_file(spec)
    followed = server.ok("job", "submit", str(file), "--cluster", "lab", "--name", "ranks", "--follow")
    for rank in range(4):
        assert f"rank {rank} of 4" in followed, followed
    expect_nothing_left(hosts)
    for name in ("h1", "h2"):
        (copy,) = (hosts.local(name) / "cache" / "gyre").iterdir()
        assert (copy / "bin" / "gyre").exists()


def test_a_job_is_cancelled_and_ends_on_its_hosts(hosts: SshCluster, server: JobServer) -> None:
    submit(server, "long", f"touch {SHARE}/runs; sleep 1000")
    wait_until("the job runs", (server.share / "runs").exists)
    server.ok("job", "stop", "long")
    assert server.verb("job", "wait", "long").returncode != 0
    expect_nothing_left(hosts)


def test_a_job_goes_on_without_its_connections_and_over_a_restart(hosts: SshCluster, server: JobServer) -> None:
    """Agents are detached from ssh: neither lost connections nor a server that is killed may cost the job anything."""
    line = f"touch {SHARE}/goes-on; until [ -e {SHARE}/go ]; do sleep 0.05; done; echo over; exit 3"
    submit(server, "detached", line)
    wait_until("the job runs", (server.share / "goes-on").exists)
    # A server that dies before it has seen that would look for the agents, and start those that have gone.
    wait_until("the server knows", lambda: "runs on h1, h2" in server.ok("job", "events", "detached"))
    server.restart(signal.SIGKILL)
    (server.share / "go").touch()
    assert server.verb("job", "wait", "detached").returncode == 3
    assert "over\n" in server.ok("job", "logs", "detached")
    expect_nothing_left(hosts)


def test_shells_lead_to_the_hosts_of_their_ranks_and_leave_nothing(hosts: SshCluster, server: JobServer) -> None:
    expect_shells_on(server, "lab", [hosts.local(name) for name in hosts.names])
    expect_nothing_left(hosts)


def test_a_cluster_needs_confirmed_keys_and_shows_them(hosts: SshCluster, server: JobServer) -> None:
    """As the guide says: what is shown is confirmed with the option that the message ends with."""
    create = ["cluster", "create", "confirmed", "--driver", "ssh", "--target", "2"]
    for option in (
        "hosts=h1,h2",
        f"ssh_config={hosts.config}",
        f"node_folder={hosts.folder / 'local'}",
        "address=127.0.0.1",
        "lease_seconds=5",
    ):
        create += ["--driver-option", option]
    done = server.verb(*create)
    assert done.returncode != 0
    for name in ("h1", "h2"):
        assert f"{name} {hosts.fingerprint(name)}" in done.stderr, done.stderr
    found = re.search(r"--driver-option '(host_keys=[^']*)'", done.stderr)
    assert found, done.stderr
    server.ok(*create, "--driver-option", found.group(1))
    followed = server.ok("job", "submit", "--cluster", "confirmed", "--nodes", "2", "--follow", "--", "echo", "a line")
    assert "a line" in followed
    expect_nothing_left(hosts)


def test_a_host_whose_key_has_changed_is_refused(hosts: SshCluster, server: JobServer) -> None:
    """At the creation of a cluster, and by a job of one that was created before."""
    file = hosts.write_cluster(server.tmp_path, server.share)
    cluster = json.loads(file.read_text())
    before = hosts.fingerprint("h1")
    hosts.stop("h1")
    hosts.make_host_key("h1")
    hosts.start("h1")
    submit(server, "refused", "true", nodes=len(hosts.names))  # With one less it would do without h1.
    wait_until("its events say so", lambda: "host key is not the one" in server.ok("job", "events", "refused"))
    assert "host key is not the one" in server.ok("job", "why", "refused")
    server.ok("job", "stop", "refused")
    server.verb("job", "wait", "refused")
    options = cluster["properties"]["gyreSettings"]["driverOptions"]
    options["lease_seconds"] = "6"  # Another cluster's.
    file.write_text(json.dumps(cluster))
    done = server.verb("cluster", "create", "changed", "-f", str(file), "--target", "2")
    assert done.returncode != 0
    assert f"h1 shows the host key {hosts.fingerprint('h1')}" in done.stderr, done.stderr
    assert before in done.stderr
    assert "reinstalled" in done.stderr
    assert "must reach it" not in done.stderr
    expect_nothing_left(hosts)
