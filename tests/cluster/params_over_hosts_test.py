"""Parameter servers over hosts: placed as the options say, the bits of one host, and what a death does to the job."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from few_digits import few_digits
from hosts import Hosts
from running_job import Job, StartJob, block_of, wait_until

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_programs("ip", "ethtool")]
LONGEST_SECONDS = 120.0
# Stands in for ssh: the last number of an address is the host's, from 1.
REACH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
exec ip netns exec NAME-host$((${1##*.} - 1)) sh -c "$2"
"""


@dataclass
class Cluster:
    """Three hosts."""

    reach: Path
    names: list[str]

    def over(self, *slots: int) -> list[str]:
        """Options for that many workers on each of the first hosts."""
        hosts = ",".join(f"{name}:{count}" for name, count in zip(self.names, slots, strict=False))
        return ["--ssh", str(self.reach), "-H", hosts]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reach = tmp_path_factory.mktemp("reach") / "reach"
    with Hosts.create(3, "1gbit") as hosts:
        reach.write_text(REACH.replace("NAME", hosts.name))
        reach.chmod(0o700)
        yield Cluster(reach, [hosts.address(host) for host in range(hosts.count)])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, content in few_digits().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def train(
    start_job: StartJob,
    data: Path,
    model: Path,
    *options: object,
    consistency: str = "sync",
    epochs: int = 1,
    waits_for: Path = Path("/"),
) -> Job:
    program = ("gyre-cifar10", "--data-dir", data, "--output-dir", model, "--epochs", epochs, "--verbose", 2)
    wait = f"while [ ! -e {waits_for} ]; do sleep 0.02; done"
    place = 'echo "$0 is rank $GYRE_RANK, $GYRE_LOCAL_RANK of $GYRE_LOCAL_SIZE, meets at $GYRE_RENDEZVOUS"; exec "$@"'
    words = [*options, "--verbose", "--", "sh", "-c", f"{wait}; {place}", "worker", *program]
    if consistency != "sync":
        words += ["--consistency", consistency]
    return start_job(*map(str, words), env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=LONGEST_SECONDS)


def places_in(job: Job) -> list[tuple[str, ...]]:
    """By worker: its number on its host, how many ranks that host has, and where the rendezvous is."""
    pattern = r"worker is rank (\d), (\d) of (\d), meets at tcp:([\d.]+):\d+"
    return [found[1:] for found in sorted(re.findall(pattern, job.stdout))]


def checkpoint_in(model: Path) -> bytes:
    (only,) = (model / "checkpoints").glob("checkpoint-*.safetensors")
    return only.read_bytes()


@pytest.fixture(scope="module")
def trained_on_one_host(gyre: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """By allreduce among four ranks. Over hosts that adds in another order; servers always add in this one."""
    model = tmp_path_factory.mktemp("model")
    program = ("gyre-cifar10", "--data-dir", str(data), "--output-dir", str(model), "--epochs", "1", "--verbose", "2")
    command = [str(gyre), "run", "-n", "4", "--", *program]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return checkpoint_in(model)


@pytest.mark.parametrize(
    ("servers", "on", "meets", "local_sizes"),
    [(2, None, 0, (3, 3)), (2, [2], 2, (2, 2)), (3, [1, 2], 1, (2, 4))],
    ids=["on_the_workers_hosts", "on_a_host_of_their_own", "on_one_of_both"],
)
def test_servers_run_where_the_options_say_and_train_the_same_network_as_on_one_host(
    start_job: StartJob,
    cluster: Cluster,
    data: Path,
    tmp_path: Path,
    trained_on_one_host: bytes,
    servers: int,
    on: list[int] | None,
    meets: int,
    local_sizes: tuple[int, int],
) -> None:
    places = [] if on is None else ["--server-hosts", ",".join(cluster.names[host] for host in on)]
    job = train(start_job, data, tmp_path / "model", *cluster.over(2, 2), "--servers", servers, *places)
    assert job.wait() == 0, job.stderr
    meeting_place = cluster.names[meets]
    assert places_in(job) == [(str(rank), str(size), meeting_place) for size in local_sizes for rank in (0, 1)]
    assert checkpoint_in(tmp_path / "model") == trained_on_one_host
    assert job.processes() == []


def test_servers_are_bound_filtered_logged_and_timed_as_on_one_host(
    start_job: StartJob, cluster: Cluster, data: Path, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    trace = tmp_path / "trace.json"
    options = ("--log-dir", logs, "--timeline", trace, "--bind", "10.77.0.0/24", "--allow", "10.77.0.0/24")
    words = (*cluster.over(2, 1), "--servers", 3, *options)
    job = train(start_job, data, tmp_path / "model", *words, consistency="async")
    assert job.wait() == 0, job.stderr
    assert sorted(path.name for path in logs.iterdir()) == [f"rank-{rank}.log" for rank in range(6)]
    for server in range(3):
        assert f"server {server}: staleness of" in (logs / f"rank-{3 + server}.log").read_text()
        assert f'"server {server}: ' in trace.read_text()


@pytest.mark.parametrize("consistency", ["async", "sync:continue"])
def test_the_others_go_on_without_a_worker_that_was_the_only_rank_of_its_host(
    start_job: StartJob, cluster: Cluster, data: Path, tmp_path: Path, consistency: str
) -> None:
    options = (*cluster.over(2, 1), "--servers", 2, "--server-hosts", cluster.names[2])
    job = train(start_job, data, tmp_path / "model", *options, consistency=consistency, epochs=5)
    pids = job.rank_pids(5)
    wait_until("the training runs", lambda: "epoch 1/5" in job.stdout)
    os.kill(pids[2], signal.SIGKILL)
    assert job.wait() == 0, job.stdout + job.stderr
    assert job.stderr.count("rank 2 of 5 ended with SIGKILL (signal 9); the others go on without it") == 1
    assert "failed first" not in job.stderr
    assert "epoch 5/5" in job.stdout
    assert job.processes() == []


def test_a_launcher_that_reads_late_knows_that_the_others_went_on(
    start_job: StartJob, cluster: Cluster, data: Path, tmp_path: Path
) -> None:
    # It reads the host of the worker before that of the server, which has said which ranks may be lost.
    logs = tmp_path / "logs"
    options = (*cluster.over(2, 1), "--servers", 1, "--server-hosts", cluster.names[2], "--log-dir", logs)
    job = train(start_job, data, tmp_path / "model", *options, consistency="async", epochs=5, waits_for=tmp_path / "go")
    pids = job.rank_pids(4)
    job.process.send_signal(signal.SIGSTOP)
    (tmp_path / "go").touch()
    log = logs / "rank-0.log"
    wait_until("the training runs", lambda: "epoch 1/5" in log.read_text())
    os.kill(pids[1], signal.SIGKILL)
    wait_until("the others have gone on", lambda: "epoch 3/5" in log.read_text())
    job.process.send_signal(signal.SIGCONT)
    assert job.wait() == 0, job.stdout + job.stderr
    assert "rank 1 of 4 ended with SIGKILL (signal 9); the others go on without it" in job.stderr
    assert "epoch 5/5" in job.stdout


def test_workers_of_two_hosts_are_lost_and_then_a_server_ends_the_job(
    start_job: StartJob, cluster: Cluster, data: Path, tmp_path: Path
) -> None:
    job = train(
        start_job, data, tmp_path / "model", *cluster.over(2, 2), "--servers", 2, consistency="async", epochs=1000
    )
    pids = job.rank_pids(6)
    wait_until("the training runs", lambda: "epoch 1/1000" in job.stdout)
    for worker in (1, 3):
        os.kill(pids[worker], signal.SIGKILL)
        wait_until(f"worker {worker} is lost", lambda: f"rank {worker} of 6 ended with SIGKILL" in job.stderr)  # noqa: B023
    os.kill(pids[5], signal.SIGKILL)
    assert job.wait() == 128 + signal.SIGKILL
    block = block_of(job)
    assert "rank 5 of 6 failed first" in block["title"]
    assert job.processes() == []


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_a_killed_worker_or_server_ends_a_synchronous_job_with_one_report(
    start_job: StartJob, cluster: Cluster, data: Path, tmp_path: Path, rank: int
) -> None:
    job = train(start_job, data, tmp_path / "model", *cluster.over(2, 2), "--servers", 2, epochs=1000)
    pids = job.rank_pids(6)
    wait_until("the training runs", lambda: "epoch 1/1000" in job.stdout)
    os.kill(pids[rank], signal.SIGKILL)
    assert job.wait() == 128 + signal.SIGKILL
    assert f"rank {rank} of 6 failed first" in block_of(job)["title"]
    assert job.processes() == []


def agents_of(job: Job) -> list[int]:
    """The launchers on the hosts, each with a guardian."""
    return [int(process.split()[0]) for process in job.processes() if process.endswith(" run --agent")]


def test_a_lost_host_of_servers_ends_the_job_with_one_report(
    start_job: StartJob, cluster: Cluster, data: Path, tmp_path: Path
) -> None:
    options = (*cluster.over(2, 1), "--servers", 1, "--server-hosts", cluster.names[2])
    job = train(start_job, data, tmp_path / "model", *options, consistency="async", epochs=1000)
    pids = job.rank_pids(4)
    wait_until("the training runs", lambda: "epoch 1/1000" in job.stdout)
    parent = int(re.findall(r"^PPid:\s*(\d+)", Path(f"/proc/{pids[3]}/status").read_text(), re.MULTILINE)[0])
    assert parent in agents_of(job)
    os.kill(parent, signal.SIGKILL)
    assert job.wait() == 255
    own_words = [line for line in job.stderr.splitlines() if re.match(r"gyre run: (?!rank|starting)", line)]
    assert own_words == [f"gyre run: lost the connection to host {cluster.names[2]}; its ranks end by themselves"]
    wait_until("no rank is left", lambda: not job.processes())


def test_nothing_is_left_on_any_host_when_the_launcher_is_killed(
    start_job: StartJob, cluster: Cluster, data: Path, tmp_path: Path
) -> None:
    options = (*cluster.over(1, 1), "--servers", 2, "--server-hosts", f"{cluster.names[1]},{cluster.names[2]}")
    job = train(start_job, data, tmp_path / "model", *options, consistency="async", epochs=1000)
    wait_until("the training runs", lambda: "epoch 1/1000" in job.stdout)
    job.process.kill()
    assert job.wait() == -signal.SIGKILL
    wait_until("nothing is left", lambda: not job.processes())


def test_a_host_of_servers_that_cannot_be_reached_is_one_message(start_job: StartJob, cluster: Cluster) -> None:
    job = start_job(*cluster.over(1), "--servers", "1", "--server-hosts", "10.77.0.9", "--", "sleep", "1000")
    assert job.wait() == 255
    assert len(job.stderr.splitlines()) == 1
    assert job.stderr.startswith("gyre run: cannot start a rank on host 10.77.0.9: ")
    assert job.processes() == []
