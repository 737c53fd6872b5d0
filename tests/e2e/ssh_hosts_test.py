"""What can be wrong with hosts behind ssh is said when their cluster is made, and what goes wrong later by the job."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hosts as networks
import pytest
from job_server import JobServer
from running_job import wait_until
from ssh_cluster import SshCluster, ssh_cluster

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("sshd", "ssh", "ssh-keygen")]

SHARE = "$AZ_BATCHAI_MOUNT_ROOT/external"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Short, and one that the jobs' user may enter."""
    made = Path(tempfile.mkdtemp(prefix="gyre-ssh-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def hosts(folder: Path) -> Iterator[SshCluster]:
    with ssh_cluster(folder / "hosts", hosts=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def server(gyre: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServer]:
    server = JobServer(gyre, tmp_path_factory.mktemp("server"))
    try:
        server.start()
        yield server
    finally:
        server.close()


def create(server: JobServer, hosts: SshCluster, name: str, /, **options: str) -> subprocess.CompletedProcess[str]:
    """`gyre cluster create`; options in place of those that are right."""
    file = hosts.write_cluster(server.tmp_path, server.share, **options)
    return server.verb("cluster", "create", name, "-f", str(file), "--target", "2")


def refusal(server: JobServer, hosts: SshCluster, /, **options: str) -> str:
    done = create(server, hosts, "wrong", **options)
    assert done.returncode != 0
    return done.stderr


def folders_of_jobs(hosts: SshCluster) -> list[Path]:
    return [path for name in hosts.names for path in hosts.local(name).glob("gyre-*")]


class Machine:
    """A host of `nets` with processes of its own: those of another host cannot be found, or ended, from there."""

    def __init__(self, nets: networks.Hosts, number: int) -> None:
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "infinity"]
        self.process = subprocess.Popen(["ip", "netns", "exec", nets.namespace(number), *apart])
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        wait_until("the machine is there", lambda: children.read_text() != "")
        self.first = children.read_text().split()[0]

    def command(self, words: list[str]) -> list[str]:
        return ["nsenter", "--target", self.first, "--pid", "--mount", "--net", *words]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def end_listener(hosts: SshCluster, name: str) -> None:
    """The ssh server alone: its logins, and what they have started, stay."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"{hosts.folder}/sshd-{name} [listener]".encode() in words:
            os.kill(int(process.name), signal.SIGTERM)
    hosts.servers.pop(name).wait()


def verdict_names(host: str, server: JobServer, job: str) -> bool:
    words = f"{host} has not been reached"
    return any("nodeLost" in line and words in line for line in server.ok("job", "events", job).splitlines())


def sleepers_on(namespace: str) -> list[str]:
    """Of jobs."""
    found = []
    for process in networks.run_tool("ip", "netns", "pids", namespace).split():
        try:
            if b"sleep\0001000" in Path("/proc", process, "cmdline").read_bytes():
                found.append(process)
        except OSError:
            continue
    return found


def test_two_names_of_one_host_are_refused(hosts: SshCluster, server: JobServer) -> None:
    """The nodes of a job would take each other's place, and the job would stand still for ever."""
    config = hosts.folder / "ssh_config_again"
    again = f"Host again\n  HostName {hosts.addresses[0]}\n  Port {hosts.ports['h1']}\n"
    config.write_text(again + hosts.config.read_text())
    key = hosts.fingerprint("h1")
    said = refusal(server, hosts, hosts="h1, again", host_keys=f"h1 {key}, again {key}", ssh_config=str(config))
    assert "again and h1 are names of one host" in said
    assert "driverOptions.hosts" in said


def test_a_login_that_hosts_refuse_is_said_for_each_of_them(hosts: SshCluster, server: JobServer) -> None:
    """The person who makes the cluster can repair it; the user of its first job cannot."""
    key = hosts.folder / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    config = hosts.folder / "ssh_config_stranger"
    config.write_text(hosts.config.read_text().replace(str(hosts.folder / "client"), str(key)))
    said = refusal(server, hosts, ssh_config=str(config))
    for name in hosts.names:
        assert f"nobody can log in to {name} " in said, said
    assert "Permission denied" in said
    assert "ssh -o BatchMode=yes h1 true" in said


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("node_folder", "/nowhere/at/all", "h2 has no folder /nowhere/at/all"),
        ("node_folder", "/proc", "cannot make folders in /proc on h1"),
        ("gyre", "/nowhere/gyre", "there is no /nowhere/gyre on h1"),
        ("gyre", "/bin/echo", "/bin/echo on h1 is not Gyre: asked for its version, it says 'echo"),
    ],
)
def test_what_hosts_lack_is_said_with_a_remedy(
    hosts: SshCluster, server: JobServer, option: str, value: str, words: str
) -> None:
    said = refusal(server, hosts, **{option: value})
    assert words in said, said
    assert f"driverOptions.{option}" in said


def test_more_than_a_host_has_is_refused_also_after_a_restart(hosts: SshCluster, server: JobServer) -> None:
    """As on other clusters: the limit would mean nothing."""
    done = create(server, hosts, "sized")
    assert done.returncode == 0, done.stderr
    for _ in range(2):
        for option, value, name in (
            ("--memory-per-node", "900000g", "memoryPerNode"),
            ("--cpus-per-node", "4000", "cpusPerNode"),
        ):
            said = server.verb("job", "submit", "--cluster", "sized", option, value, "--", "true")
            assert said.returncode != 0
            assert f"({name})" in said.stderr, said.stderr
            assert re.search(r"none of the cluster's 2 hosts have as much \(h1 has \d+ MB", said.stderr), said.stderr
        server.restart()
        wait_until("the cluster is there", lambda: server.verb("cluster", "show", "sized").returncode == 0)
    server.ok("job", "submit", "--cluster", "sized", "--memory-per-node", "64m", "--follow", "--", "true")


def test_a_program_that_ends_at_once_is_named_and_leaves_nothing(
    hosts: SshCluster, server: JobServer, folder: Path
) -> None:
    """It was Gyre's when the cluster was made, and is something else now."""
    program = folder / "gyre"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo gyre 0.1.0; exit; }\necho out of order >&2\nexit 3\n')
    program.chmod(0o755)
    done = create(server, hosts, "ends", gyre=str(program))
    assert done.returncode == 0, done.stderr
    server.ok("job", "submit", "--cluster", "ends", "--nodes", "2", "--name", "ends", "--", "true")
    wait_until("its events say so", lambda: "has ended at once" in server.ok("job", "events", "ends"))
    events = server.ok("job", "events", "ends")
    assert f"{program} (driverOptions.gyre) on h" in events
    assert "with exit code 3: out of order" in events
    assert "of ssh" not in events
    server.ok("job", "stop", "ends")
    server.verb("job", "wait", "ends")
    wait_until("the hosts are clean", lambda: folders_of_jobs(hosts) == [])


def test_certificates_in_place_of_keys_log_in(folder: Path, server: JobServer) -> None:
    """A user's certificate, that an authority has signed which the hosts trust; the hosts know no key. They show
    certificates themselves, whose keys the cluster names."""
    with ssh_cluster(folder / "certified", hosts=2) as hosts:
        authority = hosts.folder / "authority"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(authority)], check=True)
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test"]
        subprocess.run([*sign, "-n", "root", str(hosts.folder / "client.pub")], check=True)
        (hosts.folder / "authorized").unlink()
        for name in hosts.names:
            hosts.stop(name)
            subprocess.run([*sign, "-h", "-n", name, str(hosts.folder / f"host-{name}.pub")], check=True)
            hosts.settings = [
                f"TrustedUserCAKeys {authority}.pub",
                f"HostCertificate {hosts.folder}/host-{name}-cert.pub",
            ]
            hosts.start(name)
        certificate = hosts.folder / "client-cert.pub"
        certificate = certificate.rename(hosts.folder / "certificate.pub")  # Not where ssh finds it by itself.
        assert "nobody can log in to h1 " in refusal(server, hosts)
        hosts.config.write_text(hosts.config.read_text() + f"  CertificateFile {certificate}\n")
        done = create(server, hosts, "certified")
        assert done.returncode == 0, done.stderr
        followed = server.ok(
            "job", "submit", "--cluster", "certified", "--nodes", "2", "--follow", "--", "echo", "a line"
        )
        assert followed.count("a line") == 2
        wait_until("the hosts are clean", lambda: folders_of_jobs(hosts) == [])


def unreachable(server: JobServer, cluster: str) -> list[str]:
    """What `gyre cluster show` says of hosts."""
    errors = server.json("cluster", "show", cluster)["properties"]["errors"]
    return [error["message"] for error in errors if error["code"] == "HostUnreachable"]


def test_a_host_that_is_down_is_left_out_where_others_are_free(folder: Path, server: JobServer) -> None:
    """A job of two nodes needs two of the three; it waited for the first. The third is tried on, also while nothing
    runs, and is a node again when it is back."""
    with ssh_cluster(folder / "spare", hosts=3) as hosts:
        file = hosts.write_cluster(server.tmp_path, server.share)
        done = server.verb("cluster", "create", "spare", "-f", str(file), "--target", "3")
        assert done.returncode == 0, done.stderr
        assert unreachable(server, "spare") == []
        hosts.stop("h1")
        for name in ("first", "second"):
            words = ("--cluster", "spare", "--nodes", "2", "--name", name, "--follow", "--", "echo", "a line")
            assert server.ok("job", "submit", *words).count("a line") == 2
        assert "nodeLost" not in server.ok("job", "events", "first")
        [sentence] = unreachable(server, "spare")
        assert sentence.startswith("h1 has not been reached for "), sentence
        assert "Connection refused" in sentence
        assert "h1 has not been reached" in server.ok("cluster", "show", "spare")

        server.ok("job", "submit", "--cluster", "spare", "--nodes", "3", "--name", "all", "--", "true")
        wait_until("it says what it waits for", lambda: "h1: " in server.ok("job", "why", "all"))
        hosts.start("h1")
        assert server.verb("job", "wait", "all").returncode == 0, server.ok("job", "events", "all")
        assert unreachable(server, "spare") == []

        hosts.stop("h1")
        server.ok("job", "submit", "--cluster", "spare", "--nodes", "1", "--follow", "--", "true")
        assert len(unreachable(server, "spare")) == 1
        hosts.start("h1")
        wait_until("it is tried while nothing runs", lambda: unreachable(server, "spare") == [], seconds=90)
        wait_until("the hosts are clean", lambda: folders_of_jobs(hosts) == [])


@pytest.mark.needs_programs("ip", "tc", "ethtool")
def test_a_host_that_is_cut_off_is_named_and_the_job_runs_again(
    gyre: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its sshd ends, its network goes, and with it all that could say how the job is there. When it comes back nothing
    runs there any more, and it is a node as before."""
    server = JobServer(gyre, tmp_path_factory.mktemp("networks"))
    with networks.Hosts.create(3) as nets:
        server.prefix = ["ip", "netns", "exec", nets.namespace(0)]
        machines = [Machine(nets, number) for number in (1, 2)]
        addresses = [nets.address(1), nets.address(2)]
        try:
            with ssh_cluster(
                folder / "networks", 2, addresses=addresses, run_on=lambda at, words: machines[at].command(words)
            ) as hosts:
                server.start("--lease", "5")
                done = create(server, hosts, "lab", address=nets.address(0))
                assert done.returncode == 0, done.stderr
                line = f"[ ! -e {SHARE}/cut ] || exit 0; mkdir {SHARE}/up-$GYRE_RANK; exec sleep 1000"
                spec = {
                    "nodeCount": 2,
                    "stdOutErrPathPrefix": SHARE,
                    "gyreSettings": {"program": ["sh", "-c", line], "processesPerNode": 1},
                }
                server.ok("job", "submit", str(server.job_file(spec)), "--cluster", "lab", "--name", "cut")
                wait_until("two ranks run", lambda: len(list(server.share.glob("up-*"))) == 2)
                (server.share / "cut").touch()
                end_listener(hosts, "h2")
                networks.run_tool("ip", "-n", nets.switch, "link", "set", "port2-0", "down")
                wait_until("the verdict names it", lambda: verdict_names("h2", server, "cut"), seconds=120)
                wait_until("nothing runs there", lambda: not sleepers_on(nets.namespace(2)))
                networks.run_tool("ip", "-n", nets.switch, "link", "set", "port2-0", "up")
                hosts.start("h2")
                assert server.verb("job", "wait", "cut").returncode == 0, server.ok("job", "events", "cut")
                # The next job, if not this one, looks after what it has found no way to.
                server.ok("job", "submit", "--cluster", "lab", "--name", "next", "--", "sleep", "1000")
                wait_until("only its folder is there", lambda: len(folders_of_jobs(hosts)) == 1)
        except BaseException:
            print(server.verb("job", "events", "cut").stdout, server.verb("job", "why", "cut").stdout)
            raise
        finally:
            server.close()
            for machine in machines:
                machine.end()
