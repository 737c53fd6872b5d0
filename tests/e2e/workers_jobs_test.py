"""`gyre.workers` with a job server: each worker is a job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gyre.errors import InvalidArgumentError
from gyre.workers import _session
from gyre.workers._keeper import address_of
from gyre.workers._order import jobs_socket
from job_server import JobServer
from running_job import wait_until
from worker_session import PACKAGE, processes_with, worker_session

from gyre import workers

LONG = 120.0
SLEEP = "import time; time.sleep(1000)"


@pytest.fixture
def server(gyre: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evidence: list[Path]) -> Iterator[JobServer]:
    """With a cluster of two nodes. The session is in its share, which the jobs' user can use."""
    with worker_session(gyre, tmp_path, monkeypatch):
        server = JobServer(gyre, tmp_path)
        evidence.append(server.log)
        server.environment["CUDA_VISIBLE_DEVICES"] = "GPU-a,GPU-b"
        server.start()
        server.ok("cluster", "create", "pool", "-t", "2")
        shutil.copytree(PACKAGE / "gyre", server.share / "gyre", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        monkeypatch.chdir(server.share)
        monkeypatch.syspath_prepend(str(server.share))
        yield server
        workers.stop_workers()
        server.close()


@pytest.fixture
def small(server: JobServer) -> dict[str, Any]:
    # The Python that runs the tests may be below a home folder.
    python = {"python": "/usr/bin/python3"} if os.geteuid() == 0 else {}
    return {"cpu": 1, "memory": 0.5, "server": str(server.folder / "server.json"), **python}


def test_workers_are_jobs_with_their_output_here(
    server: JobServer, small: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import os, sys; print('out', os.environ['A'], len(os.sched_getaffinity(0))); print('err', file=sys.stderr)"
    gpus = "\nprint('GPUs', os.environ['CUDA_VISIBLE_DEVICES'])"
    launched = workers.launch_workers(1, **small, nvidia_gpu=2, cluster="pool", code=code + gpus, env={"A": "b"})
    failing = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'] or 'a reason'); exit(3)"
    launched += workers.launch_workers(1, **small, code=failing)
    assert [one["status"] for one in launched] == ["scheduling"] * 2
    result = workers.await_workers(launched, timeout_seconds=LONG)
    (good,), (bad,) = result["workers"], result["failures"]
    assert (good["status"], good["exit_code"]) == ("succeeded", 0)
    assert {key: bad[key] for key in ("phase", "exit_code", "last_log_lines", "message")} == {
        "phase": "run",
        "exit_code": 3,
        "last_log_lines": ["a reason"],
        "message": "it exited with code 3; its last line: a reason",
    }
    assert good["ip_address"].startswith("127.")
    assert good["ip_address"] != bad["ip_address"]
    shown = capfd.readouterr()
    assert "[worker-0] out b 1" in shown.out.splitlines()
    assert "[worker-0] GPUs GPU-a,GPU-b" in shown.out.splitlines()
    assert "[worker-0] err" in shown.err.splitlines()
    jobs = server.json("job", "list")
    assert sorted(job["name"].rpartition("-")[0] for job in jobs) == ["worker-0", "worker-1"]


def test_a_worker_that_gets_no_node_says_so_and_can_be_stopped(server: JobServer, small: dict[str, Any]) -> None:
    launched = workers.launch_workers(3, **small, code=SLEEP)
    assert len(workers.await_workers(launched[:2], False, LONG)["workers"]) == 2
    (failure,) = workers.await_workers(launched[2], False, timeout_seconds=0.2)["failures"]
    assert (failure["phase"], failure["message"]) == ("timeout", "it was still scheduling after 0.2 s")
    (stopped,) = workers.stop_workers(launched[2])
    assert stopped["status"] == "stopped"
    workers.stop_workers()
    assert [one["status"] for one in workers.list_workers()] == ["stopped"] * 3
    wait_until("no job is left", lambda: server.json("job", "list", "--state", "running") == [])


def test_a_cluster_of_jobs(server: JobServer, small: dict[str, Any]) -> None:
    (server.share / "talk.py").write_text(
        "import socket\n"
        "def serve(cluster, server, task_index):\n"
        "    server.listener.accept()[0].sendall(b'an answer')\n"
        "    server.join()\n"
        "def run(cluster, server, task_index):\n"
        "    host, _, port = cluster.task_address('ps', 0).partition(':')\n"
        "    answer = socket.create_connection((host, int(port))).recv(100)\n"
        "    if answer != b'an answer' or server.target.startswith(f'grpc://{host}:'): raise ValueError(answer)\n"
    )
    tensorflow: dict[str, Any] = {"tensorflow": False, "timeout_seconds": LONG}
    assert workers.run_cluster(1, 1, **small, **tensorflow, worker_script="talk") == (None, None)
    with pytest.raises(workers.ClusterStartError, match="No module named 'nowhere'") as caught:
        workers.run_cluster(1, 1, **small, **tensorflow, worker_script="nowhere")
    assert caught.value.failures[0]["phase"] == "start"
    assert all(one["status"] in ("succeeded", "failed", "stopped") for one in workers.list_workers())


def test_what_the_server_refuses_is_a_failure_of_the_launch(small: dict[str, Any]) -> None:
    (launched,) = workers.launch_workers(1, **small, cluster="nowhere", code="pass")
    (failure,) = workers.await_workers(launched)["failures"]
    assert (failure["phase"], failure["status"]) == ("launch", "failed")
    assert "nowhere" in failure["message"]
    (launched,) = workers.launch_workers(1, **small, nvidia_gpu=3)
    (failure,) = workers.await_workers(launched)["failures"]
    assert failure["phase"] == "launch"
    assert "it asks for 3 GPUs (gpusPerNode)" in failure["message"]
    with pytest.raises(InvalidArgumentError, match="no server is named"):
        workers.launch_workers(1, 1, 1, cluster="pool")


def test_jobs_end_with_a_session_that_is_killed(server: JobServer, small: dict[str, Any]) -> None:
    script = (
        "from gyre import workers\n"
        f"launched = workers.launch_workers(1, **{small!r}, env={{'GYRE_TEST_KILLED': 'yes'}}, code={SLEEP!r})\n"
        f"print(len(workers.await_workers(launched, False, {LONG})['workers']), flush=True)\n"
        "import time; time.sleep(1000)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    session = subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
    assert session.stdout is not None
    assert session.stdout.readline() == "1\n"
    session.send_signal(signal.SIGKILL)
    session.wait()
    session.stdout.close()
    wait_until("its worker has ended", lambda: processes_with("GYRE_TEST_KILLED=yes") == [])
    wait_until("its job has ended", lambda: server.json("job", "list", "--state", "running") == [])


def test_a_stranger_at_the_sockets_is_turned_away(small: dict[str, Any]) -> None:
    """Any user can connect to the socket for jobs: garbage is survived, and without the key there is no order."""
    launched = workers.launch_workers(1, **small, code=SLEEP)
    (running,) = workers.await_workers(launched, False, LONG)["workers"]
    place = address_of(jobs_socket(_session.current().id))
    hello = {"worker": running["id"], "address": "127.9.9.9", "nonce": "n", "proof": "ä" * 64}
    for said in (b"[]\n", b"\xff\n", b"[" * 100_000 + b"\n", b"{}\n", json.dumps(hello).encode() + b"\n"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(place)
            stranger.settimeout(LONG)
            assert b"nonce" in stranger.recv(1000)
            stranger.sendall(said)
            assert stranger.recv(1000) == b""
    silent = [socket.socket(socket.AF_UNIX) for _ in range(100)]
    for stranger in silent:
        stranger.connect(place)
    silent[0].settimeout(LONG)
    while silent[0].recv(1000):  # Its nonce, then its end: the newest may stay.
        pass
    for stranger in silent:
        stranger.close()
    assert [one["ip_address"] for one in workers.stop_workers()] == [running["ip_address"]]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.usefixtures("server")
def test_another_users_many_connections_end_no_one_elses(small: dict[str, Any]) -> None:
    """Twelve of sixteen workers failed while another user of the machine kept on connecting."""
    workers.launch_workers(1, **small, code=SLEEP)
    place = address_of(jobs_socket(_session.current().id))
    crowd = (
        "import socket, sys\n"
        "crowd = [socket.socket(socket.AF_UNIX) for _ in range(200)]\n"
        "for one in crowd: one.connect('\\0' + sys.argv[1])\n"
        "assert b'nonce' in crowd[-1].recv(1000)\n"  # All have been accepted.
    )
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(place)
        ours.settimeout(LONG)
        assert b"nonce" in ours.recv(1000)
        subprocess.run(["/usr/bin/python3", "-c", crowd, place[1:]], user=65534, cwd="/", check=True, timeout=LONG)
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1000)
