"""Programs that were written for the workers API of other platforms run unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import free_port
from worker_session import PACKAGE, worker_session

from gyre import workers


@pytest.fixture(autouse=True)
def session(gyre: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with worker_session(gyre, tmp_path, monkeypatch) as marker:
        yield marker


MASTER = """
import cdsw, socket
import cml.workers_v1
from cdsw_tensorflow_utils import run_cluster

server = socket.create_server(("0.0.0.0", PORT))
workers = cdsw.launch_workers(n=2, cpu=0.2, memory=0.5, script="worker.py")
for _ in range(2):
    connection, _ = server.accept()
    print(connection.recv(100).decode())
    connection.close()
ids = [worker["id"] for worker in workers]
result = cml.workers_v1.await_workers(ids, wait_for_completion=True, timeout_seconds=60)
print(sorted(result), len(result["workers"]))
print(run_cluster(n_workers=1, n_ps=1, cpu=0.5, memory=0.5, worker_script="task", timeout_seconds=120))
try:
    cdsw.track_metric("loss", 1)
except AttributeError as error:
    print(error)
"""
WORKER = """
import cdsw, os, socket
with socket.create_connection((os.environ["CDSW_MASTER_IP"], PORT)) as connection:
    connection.sendall(b"hello from a worker")
"""


def test_code_written_for_cdsw_runs_unchanged(tmp_path: Path) -> None:
    port = str(free_port())
    (tmp_path / "master.py").write_text(MASTER.replace("PORT", port))
    (tmp_path / "worker.py").write_text(WORKER.replace("PORT", port))
    (tmp_path / "task.py").write_text("def run(cluster, server, task_index): print(cluster.jobs)")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    where = subprocess.run(
        [sys.executable, "-m", "gyre.cdsw"], env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    environment["PYTHONPATH"] = f"{where}:{PACKAGE}"
    done = subprocess.run(
        [sys.executable, "master.py"], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "hello from a worker",
        "hello from a worker",
        "['failures', 'workers'] 2",
        "[worker 0] ['worker', 'ps']",
        "(None, None)",
        "Gyre's cdsw has the workers API only (await_workers, launch_workers, list_workers, stop_workers), "
        "not track_metric",
    ]


@pytest.mark.parametrize("installs", [False, True])
def test_a_copy_of_the_platforms_utility_beside_the_script_is_reported(tmp_path: Path, installs: bool) -> None:
    (tmp_path / "cdsw_tensorflow_utils.py").write_text("def run_cluster(**options): return None, None\n")
    install = "import gyre.cdsw; gyre.cdsw.install()" if installs else ""
    (tmp_path / "master.py").write_text(
        f"{install}\nimport cdsw, cdsw_tensorflow_utils\nprint(cdsw_tensorflow_utils.__doc__)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE / 'gyre/_cdsw_shim'}:{PACKAGE}"}
    done = subprocess.run(
        [sys.executable, tmp_path / "master.py"],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reported = f"{tmp_path / 'cdsw_tensorflow_utils.py'} takes precedence over Gyre's" in done.stderr
    assert reported != installs
    assert ("run by Gyre" in done.stdout) == installs


LAUNCHER = """
import json, os, tempfile
import cdsw
from cdsw_tensorflow_utils import tensorflow_worker_code

folder = tempfile.mkdtemp(dir=".")
launched = {
    job: cdsw.launch_workers(n=n, cpu=0.2, memory=0.5, code=tensorflow_worker_code(folder, job, "task"))
    for job, n in (("worker", 2), ("ps", 1))
}
spec = {}
for job, workers in launched.items():
    running = cdsw.await_workers(workers, wait_for_completion=False, timeout_seconds=60)["workers"]
    spec[job] = [worker["ip_address"] + ":2323" for worker in running]
with open(folder + "/new", "w") as file:
    json.dump(spec, file)
os.rename(folder + "/new", folder + "/cluster.json")
ended = cdsw.await_workers(launched["worker"], timeout_seconds=60)
print(len(ended["workers"]), ended["failures"])
print(cdsw.list_workers()[-1]["status"])
cdsw.stop_workers(*[worker["id"] for worker in launched["ps"]])
"""
TASK = """
import socket, time

def run(cluster, server, task_index):
    while True:
        try:
            socket.create_connection(tuple(cluster.task_address("ps", 0).split(":"))).close()
            break
        except ConnectionRefusedError:  # The parameter server is about to listen.
            time.sleep(0.01)
    own = cluster.task_address("worker", task_index)
    print("task", task_index, "of", cluster.num_tasks("worker"), server.target == "grpc://" + own)
"""


def test_a_program_can_launch_the_tasks_of_a_cluster_itself(tmp_path: Path) -> None:
    (tmp_path / "master.py").write_text(LAUNCHER)
    (tmp_path / "task.py").write_text(TASK)
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE / 'gyre/_cdsw_shim'}:{PACKAGE}"}
    done = subprocess.run(
        [sys.executable, "master.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sorted(lines[:2]) == ["[worker-0] task 0 of 2 True", "[worker-1] task 1 of 2 True"], lines
    assert lines[2:] == ["2 []", "running"]


def test_the_code_of_a_task_is_for_workers_and_parameter_servers() -> None:
    with pytest.raises(ValueError, match="job_name is 'chief'; it must be 'worker' or 'ps'"):
        workers.tensorflow_worker_code("/tmp", "chief")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"worker": ["127.0.', "is not valid JSON"),
        ('["127.0.0.2:2323"]', "is not a cluster such as"),
        ('{"worker": ["127.0.0.2"]}', "is not a cluster such as"),
        ('{"worker": [2323]}', "is not a cluster such as"),
        ('{"ps": ["127.0.0.2:2323"]}', "the cluster has 0 tasks of the job 'worker' at 127.0.0.2, not one"),
        ('{"worker": ["127.0.0.2:1", "127.0.0.2:2"]}', "the cluster has 2 tasks of the job 'worker' at 127.0.0.2"),
    ],
)
def test_a_file_that_is_not_a_cluster_is_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    code = workers.tensorflow_worker_code(tmp_path, "worker")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "CDSW_IP_ADDRESS": "127.0.0.2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]


def test_the_code_of_a_task_needs_a_worker(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"worker": ["127.0.0.2:2323"]}')
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    environment.pop("CDSW_IP_ADDRESS", None)
    code = workers.tensorflow_worker_code(tmp_path, "worker")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "CDSW_IP_ADDRESS is not set" in done.stderr.splitlines()[-1]
