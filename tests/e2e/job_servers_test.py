"""Jobs with parameter servers: Gyre's own, and those of a TensorFlow job."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from article_job import make_share
from running_job import wait_until

LONGEST_SECONDS = 90
# A server listens at its place in the list, and each worker asks every server for a word. No TensorFlow is needed.
ROLE = """
import json, os, socket, sys, time
role, index = sys.argv[1], int(os.environ["AZ_BATCHAI_TASK_INDEX"])
servers = [place.rsplit(":", 1) for place in os.environ["AZ_BATCHAI_PS_HOSTS"].split(",")]
workers = os.environ["AZ_BATCHAI_WORKER_HOSTS"].split(",")
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(f"{role} {index}: {len(servers)} servers, {len(workers)} workers, {task['type']} {task['index']}", flush=True)
if role == "server":
    listener = socket.create_server((servers[index][0], int(servers[index][1])))
    while True:
        listener.accept()[0].sendall(b"hello")
for host, port in servers:
    for _ in range(600):
        try:
            with socket.create_connection((host, int(port))) as connection:
                print(f"{role} {index} heard {connection.recv(100).decode()}", flush=True)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
"""


@pytest.fixture
def share() -> Iterator[Path]:
    with make_share() as folder:
        yield folder


def job_run(gyre: Path, tmp_path: Path, share: Path, properties: dict[str, Any]) -> list[str]:
    file = tmp_path / "job.json"
    logs = {"stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/share", "nodeCount": 1}
    threads = {"environmentVariables": [{"name": "OMP_NUM_THREADS", "value": "1"}]}
    file.write_text(json.dumps({"properties": {**logs, **threads, **properties}}))
    return [str(gyre), "job", "run", str(file), "--mount", f"share={share}"]


def environment_of(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}


def training(gyre: Path, share: Path, digits: dict[str, bytes], *options: str) -> list[str]:
    for name, content in digits.items():
        path = share / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folders = ["--data-dir", "$AZ_BATCHAI_MOUNT_ROOT/share/data", "--output-dir", "$AZ_BATCHAI_MOUNT_ROOT/share/model"]
    return [str(gyre.with_name("gyre-cifar10")), *folders, "--verbose", "2", *options]


@pytest.mark.parametrize(("nodes", "processes", "servers"), [(1, 2, 1), (2, 1, 3)])
def test_a_gyre_job_trains_through_its_parameter_servers(
    gyre: Path, tmp_path: Path, share: Path, digits: dict[str, bytes], nodes: int, processes: int, servers: int
) -> None:
    program = training(gyre, share, digits, "--epochs", "1", "--consistency", "async")
    line = 'echo "worker $GYRE_RANK on a node of $GYRE_LOCAL_SIZE"; exec "$0" "$@"'
    settings = {"program": ["bash", "-c", line, *program], "processesPerNode": processes, "servers": servers}
    command = job_run(gyre, tmp_path, share, {"nodeCount": nodes, "gyreSettings": settings})
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LONGEST_SECONDS, env=environment_of(tmp_path), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks x batch 32" in done.stdout
    # They take turns on the nodes.
    ranks = {1: [3, 3], 2: [1 + 2, 1 + 1]}[nodes]
    for worker, count in enumerate(ranks):
        assert f"worker {worker} on a node of {count}" in done.stdout, done.stdout
    for server in range(servers):
        assert re.search(rf"server {server}: staleness of \d+ updates", done.stdout), done.stdout
    assert list((share / "model" / "checkpoints").iterdir())


@pytest.mark.parametrize(("nodes", "processes"), [(1, 2), (2, 1)])
def test_a_job_goes_on_without_a_killed_worker_where_its_consistency_allows_that(
    gyre: Path, tmp_path: Path, share: Path, digits: dict[str, bytes], nodes: int, processes: int
) -> None:
    words = training(gyre, share, digits, "--epochs", "12", "--consistency", "async")
    line = 'echo "worker $GYRE_RANK of $GYRE_SIZE, $GYRE_SERVERS server: process $$"; exec "$0" "$@"'
    settings = {"program": ["bash", "-c", line, *words], "processesPerNode": processes, "servers": 1}
    output = tmp_path / "output"
    with output.open("w") as sink:
        job = subprocess.Popen(
            job_run(gyre, tmp_path, share, {"nodeCount": nodes, "gyreSettings": settings}),
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment_of(tmp_path),
        )
    try:
        wait_until("the training runs", lambda: "epoch 1/12" in output.read_text())
        worker = re.search(r"worker 1 of 3, 1 server: process (\d+)", output.read_text())
        assert worker, output.read_text()
        os.kill(int(worker[1]), signal.SIGKILL)
        assert job.wait(timeout=LONGEST_SECONDS) == 0, output.read_text()
    finally:
        job.terminate()
        job.wait()
    assert "the others go on without it" in output.read_text()
    assert "epoch 12/12" in output.read_text()


def tensorflow_job(share: Path, script: str) -> dict[str, Any]:
    (share / "role.py").write_text(script)
    return {
        "nodeCount": 2,
        "tensorFlowSettings": {
            "pythonScriptFilePath": "$AZ_BATCHAI_MOUNT_ROOT/share/role.py",
            "pythonInterpreterPath": "/usr/bin/python3",
            "masterCommandLineArgs": "master",
            "workerCommandLineArgs": "worker",
            "parameterServerCommandLineArgs": "server",
            "workerCount": 2,
            "parameterServerCount": 1,
        },
    }


def test_a_tensorflow_job_starts_its_parameter_server_and_ends_it(gyre: Path, tmp_path: Path, share: Path) -> None:
    command = job_run(gyre, tmp_path, share, tensorflow_job(share, ROLE))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LONGEST_SECONDS, env=environment_of(tmp_path), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    logs = {path.name: path.read_text() for path in share.glob("**/stdouterr/stdout-*.txt")}
    assert logs == {
        "stdout-ps-0.txt": "server 0: 1 servers, 2 workers, ps 0\n",
        "stdout-wk-0.txt": "master 0: 1 servers, 2 workers, master 0\nmaster 0 heard hello\n",
        "stdout-wk-1.txt": "worker 1: 1 servers, 2 workers, worker 1\nworker 1 heard hello\n",
    }


def test_a_parameter_server_that_fails_fails_its_tensorflow_job(gyre: Path, tmp_path: Path, share: Path) -> None:
    script = "import sys, time\nif sys.argv[1] == 'server': sys.exit('no such model')\ntime.sleep(1000)\n"
    command = job_run(gyre, tmp_path, share, tensorflow_job(share, script))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LONGEST_SECONDS, env=environment_of(tmp_path), check=False
    )
    assert done.returncode == 1
    assert "no such model" in done.stdout + done.stderr
