"""`gyre.workers.run_cluster`: clusters of workers and parameter servers, and every way in which they can fail."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import rounds, seeded_random
from gyre.errors import InvalidArgumentError
from gyre.workers import _folder, _limits
from running_job import wait_until
from worker_session import PACKAGE, cgroups_of, processes_with, worker_session

from gyre import workers

SMALL: dict[str, Any] = {"cpu": 1, "memory": 0.5, "tensorflow": False}
LONG = 120.0  # Seconds that no start takes, even on a busy machine.


@pytest.fixture(autouse=True)
def session(gyre: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The marker of what the test's workers start."""
    with worker_session(gyre, tmp_path, monkeypatch) as marker:
        yield marker


# Each worker sends its number to every parameter server, which answers with the sum of all of them.
SUMS = """
import socket

def serve(cluster, server, task_index):
    while True:
        links = [server.listener.accept()[0] for _ in cluster.job_tasks("worker")]
        total = sum(int(link.recv(100)) for link in links) + 100 * task_index
        for link in links:
            link.sendall(str(total).encode())

def run(cluster, server, task_index):
    for address in cluster.job_tasks("ps"):
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port))) as link:
            link.sendall(str(task_index + 1).encode())
            print(task_index, server.job_name, link.recv(100).decode(), server.target)
"""


def test_workers_and_servers_know_each_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sums.py").write_text(SUMS)
    assert workers.run_cluster(3, 2, **SMALL, worker_script="sums", timeout_seconds=LONG) == (None, None)
    said = sorted(line for line in capfd.readouterr().out.splitlines())
    assert [line.rpartition(" ")[0] for line in said] == sorted(
        f"[worker {index}] {index} worker {total}" for index in range(3) for total in (6, 106)
    )
    assert len({line.rpartition(" ")[2] for line in said}) == 3
    listed = [(one["role"], one["index"], one["status"]) for one in workers.list_workers()]
    assert listed == [("worker", index, "succeeded") for index in range(3)] + [
        ("ps", index, "stopped") for index in range(2)
    ]


def test_without_a_script_all_tasks_listen_until_they_are_stopped() -> None:
    spec, target = workers.run_cluster(2, 1, **SMALL, timeout_seconds=LONG)
    assert spec is not None
    assert {job: len(tasks) for job, tasks in spec.items()} == {"worker": 2, "ps": 1}
    assert target == f"grpc://{spec['worker'][0]}"
    addresses = spec["worker"] + spec["ps"]
    assert len(set(addresses)) == 3
    for address in addresses:
        host, _, port = address.partition(":")
        socket.create_connection((host, int(port)), timeout=60).close()
    assert [one["status"] for one in workers.stop_workers()] == ["stopped"] * 3


def test_a_cluster_without_servers_stops_nothing_else(tmp_path: Path) -> None:
    """In the original, stopping an empty list of servers stops all workers of the session."""
    (tmp_path / "alone.py").write_text("def run(cluster, server, task_index):\n    assert cluster.jobs == ['worker']")
    (other,) = workers.launch_workers(1, 1, 0.5, ssh=False, code="import time; time.sleep(1000)")
    workers.await_workers(other, wait_for_completion=False, timeout_seconds=0)
    assert workers.run_cluster(2, 0, **SMALL, worker_script="alone", timeout_seconds=LONG) == (None, None)
    assert workers.list_workers()[0]["status"] == "running"


SLEEP = "import time; time.sleep(1000)"
RUN = "def run(cluster, server, task_index):\n    "
AT_START = (workers.ClusterStartError, "start")
IN_RUN = (workers.ClusterRunError, "run")
FAILURES: dict[str, tuple[str, tuple[type[workers.ClusterError], str], dict[str, Any], str]] = {
    "a missing module": (
        "import nothing_of_this_name",
        AT_START,
        {"exit_code": 1, "status": "failed"},
        "ModuleNotFoundError: No module named 'nothing_of_this_name'",
    ),
    "a module without run": ("x = 1", AT_START, {"exit_code": 1, "role": "worker"}, "has no function run(cluster,"),
    "a module that exits": ("raise SystemExit(0)", AT_START, {"exit_code": 0}, "ended before the cluster had started"),
    "a module that kills": ("import os; os.kill(os.getpid(), 9)", AT_START, {"signal": "SIGKILL"}, "killed by SIGKILL"),
    "a failing worker": (
        RUN + "if task_index == 1: raise ValueError('bad data')\n    " + SLEEP,
        IN_RUN,
        {"role": "worker", "index": 1, "exit_code": 1, "signal": None},
        "ValueError: bad data",
    ),
    "a worker that exits": (
        RUN + "print('a last word'); raise SystemExit(task_index * 7)",
        IN_RUN,
        {"role": "worker", "index": 1, "exit_code": 7, "last_log_lines": ["a last word"]},
        "it exited with code 7",
    ),
    "a worker that is killed": (
        RUN + "import os\n    if task_index == 0: os.kill(os.getpid(), 9)\n    " + SLEEP,
        IN_RUN,
        {"role": "worker", "index": 0, "signal": "SIGKILL", "exit_code": 137},
        "it was killed by SIGKILL",
    ),
    "a server that ends": (
        "def serve(cluster, server, task_index): pass\n" + RUN + SLEEP,
        IN_RUN,
        {"role": "ps", "index": 0, "exit_code": 0},
        "it ended before the workers did",
    ),
}


@pytest.mark.parametrize("case", FAILURES.values(), ids=FAILURES)
def test_a_failure_is_one_typed_error_with_the_log(case: Any, tmp_path: Path) -> None:
    module, (kind, phase), expected, message = case
    (tmp_path / "failing.py").write_text(module)
    with pytest.raises(kind) as caught:
        workers.run_cluster(2, 1, **SMALL, worker_script="failing", timeout_seconds=LONG)
    failure = caught.value.failures[0]
    assert message in failure["message"]
    assert failure["phase"] == phase
    assert {key: failure[key] for key in expected} == expected
    assert {"id", "role", "index", "phase", "status", "host", "last_log_lines", "message"} <= set(failure)
    assert message in str(caught.value)
    assert all(one["status"] in ("failed", "stopped", "succeeded") for one in workers.list_workers())
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.failures) == (kind, str(caught.value), caught.value.failures)


def test_a_module_that_nobody_has_is_named() -> None:
    with pytest.raises(workers.ClusterStartError, match="No module named 'no_such_module'"):
        workers.run_cluster(1, 0, **SMALL, worker_script="no_such_module", timeout_seconds=LONG)


def test_the_start_has_one_time_limit_for_all_tasks(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("print('loading')\n" + SLEEP)
    with pytest.raises(workers.ClusterStartError, match="did not start in time") as caught:
        workers.run_cluster(1, 1, **SMALL, worker_script="slow", timeout_seconds=1)
    assert [(one["role"], one["phase"], one["status"]) for one in caught.value.failures] == [
        ("worker", "timeout", "stopped"),
        ("ps", "timeout", "stopped"),
    ]
    assert caught.value.failures[0]["message"] == "it was not ready 1 s after the launch; phase: start"


def test_the_run_has_a_time_limit_only_if_one_is_given(tmp_path: Path) -> None:
    """In the original, the run ends after 60 s, and nobody hears of it."""
    (tmp_path / "endless.py").write_text(RUN + "print('training'); " + SLEEP)
    with pytest.raises(workers.ClusterRunError, match="did not finish in time") as caught:
        workers.run_cluster(1, 1, **SMALL, worker_script="endless", timeout_seconds=LONG, run_timeout_seconds=1)
    (failure,) = caught.value.failures
    assert (failure["role"], failure["phase"], failure["exit_code"]) == ("worker", "timeout", 143)


def test_a_worker_that_cannot_be_launched_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYRE_PROGRAM", "/nowhere/gyre")
    with pytest.raises(workers.ClusterStartError) as caught:
        workers.run_cluster(1, 1, **SMALL, timeout_seconds=LONG)
    assert {one["phase"] for one in caught.value.failures} == {"launch"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_workers": 0}, "n_workers is 0"),
        ({"n_ps": -1}, "n_ps is -1"),
        ({"worker_script": "train.py "}, "the name of a Python module is needed"),
        ({"worker_script": "a/train"}, "the name of a Python module is needed"),
        ({"timeout_seconds": -1}, "timeout_seconds is -1"),
    ],
)
def test_bad_input_is_one_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        workers.run_cluster(**{"n_workers": 1, "n_ps": 0, **SMALL, **arguments})
    assert workers.list_workers() == []


@pytest.mark.parametrize(("runs", "servers"), [(30, 0), (20, 1)])
def test_short_runs_one_after_the_other_leave_nothing_behind(
    runs: int, servers: int, tmp_path: Path, session: str
) -> None:
    """Descriptors of the session are counted, too: each run has pipes and sockets."""
    (tmp_path / "short.py").write_text(RUN + "pass")

    def run() -> None:
        assert workers.run_cluster(1, servers, **SMALL, worker_script="short", timeout_seconds=LONG) == (None, None)

    run()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(runs - 1):
        run()
    assert processes_with(session) == []
    wait_until("no descriptor is left", lambda: len(list(Path("/proc/self/fd").iterdir())) <= before)


INTERRUPTED = f"""
from gyre import workers
try:
    workers.run_cluster(2, 1, **{SMALL!r}, worker_script="endless", timeout_seconds={LONG})
except KeyboardInterrupt:
    print([one["status"] for one in workers.list_workers()])
"""


def test_an_interrupt_stops_the_whole_cluster(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(RUN + "print('training'); " + SLEEP)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env={**os.environ, "PYTHONPATH": f"{PACKAGE}:{tmp_path}"},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline().endswith("training\n")
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == "['stopped', 'stopped', 'stopped']\n"
    assert process.wait(timeout=60) == 0
    process.stdout.close()


RESTLESS = f"""
from gyre import workers
print("up", flush=True)
while True:
    workers.run_cluster(2, 1, **{SMALL!r}, worker_script="short", timeout_seconds={LONG})
"""


def test_a_session_that_is_killed_at_any_moment_leaves_nothing(tmp_path: Path, session: str) -> None:
    """Also while it launches workers that have not heard from it yet: their cgroups and its folder are then removed by
    the next session."""
    (tmp_path / "short.py").write_text(RUN + "pass")
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{tmp_path}", "TMPDIR": str(tmp_path / "temporary")}
    moments = seeded_random()
    for _ in range(rounds(everyday=6, long=100)):
        process = subprocess.Popen([sys.executable, "-c", RESTLESS], env=environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        time.sleep(moments.uniform(0, 0.6))
        process.kill()
        process.wait()
        process.stdout.close()
        wait_until("its workers have ended", lambda: processes_with(session) == [])
        _folder.remove_stale_folders(tmp_path / "temporary")
        _limits.remove_stale_cgroups()
        assert list((tmp_path / "temporary").glob("gyre-workers-*")) == []
        assert cgroups_of(process.pid) == []
