"""`gyre.workers`: the workers API of article 002, as its public documentation describes it. Every worker is real."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gyre.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from gyre.workers import _limits, _local, _session
from running_job import wait_until
from worker_session import PACKAGE, processes_with, worker_session

from gyre import workers

SLEEP = "import time; time.sleep(1000)"
SMALL: dict[str, Any] = {"cpu": 0.5, "memory": 0.5}
NO_SSH: dict[str, Any] = {**SMALL, "ssh": False}


@pytest.fixture(autouse=True)
def session(gyre: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The marker of what the test's workers start."""
    with worker_session(gyre, tmp_path, monkeypatch) as marker:
        yield marker


def test_workers_run_scripts_and_code_and_their_output_appears_here(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hello.py").write_text(
        "import os, sys\nprint('hello', os.environ['GREETED'])\nsys.exit(__name__ != '__main__')"
    )
    code = "import sys\nprint('from code')\nprint('an error', file=sys.stderr)\n!echo from a shell"
    scripts = workers.launch_workers(2, **NO_SSH, script="hello.py", code="not Python", env={"GREETED": "you"})
    coded = workers.launch_workers(n=1, **NO_SSH, code=code)
    result = workers.await_workers(scripts + coded)
    assert [one["status"] for one in result["workers"]] == ["succeeded"] * 3
    assert result["failures"] == []
    shown = capfd.readouterr()
    assert sorted(shown.out.splitlines()) == [
        "[worker-0] hello you",
        "[worker-1] hello you",
        "[worker-2] from a shell",
        "[worker-2] from code",
    ]
    assert "[worker-2] an error" in shown.err.splitlines()


def test_a_script_may_be_named_like_an_option_and_given_as_a_path(tmp_path: Path) -> None:
    (tmp_path / "-c.py").write_text("import sys; assert sys.argv[1:] == []; sys.exit(3)")
    launched = workers.launch_workers(1, **NO_SSH, script=Path("-c.py"))  # type: ignore[arg-type]
    assert [one["exit_code"] for one in workers.await_workers(launched)["failures"]] == [3]


@dataclass
class Documented:
    """A sentence of the documentation of await_workers, or the opposite of a defect of the original, as workers that
    run `codes` and what `arguments` must give: `reached` and `failed` by the workers' positions."""

    sentence: str
    codes: list[str]
    arguments: dict[str, Any]
    reached: list[int]
    failed: dict[int, dict[str, Any]] = field(default_factory=dict)


A_REASON = {
    "phase": "run",
    "status": "failed",
    "exit_code": 3,
    "signal": None,
    "role": "worker",
    "last_log_lines": ["a reason"],
    "message": "it exited with code 3; its last line: a reason",
}
KILLED = {"phase": "run", "status": "failed", "signal": "SIGKILL", "message": "it was killed by SIGKILL"}
LATE = {"phase": "timeout", "status": "running", "message": "it was still running after 0.2 s"}
DOCUMENTED = [
    Documented("True waits for all workers to exit successfully", ["pass"] * 2, {}, [0, 1]),
    Documented("False waits for the running status", [SLEEP] * 2, {"wait_for_completion": False}, [0, 1]),
    Documented("False is content with one that has run", ["pass"], {"wait_for_completion": False}, [0]),
    Documented(
        "failures has those that did not succeed", ["pass", "print('a reason'); exit(3)"], {}, [0], {1: A_REASON}
    ),
    Documented("a signal is named", ["import os; os.kill(os.getpid(), 9)"], {}, [], {0: KILLED}),
    Documented("late workers are failures", [SLEEP] * 2, {"timeout_seconds": 0.2}, [], {0: LATE, 1: LATE}),
    Documented("0 means no timeout", ["import time; time.sleep(0.3)"], {"timeout_seconds": 0}, [0]),
    Documented(
        "fail_fast sees a failure behind an unfinished worker",
        [SLEEP, "exit(1)"],
        {"timeout_seconds": 0, "fail_fast": True},
        [],
        {0: {"exit_code": None}, 1: {"exit_code": 1}},
    ),
    Documented(
        "min_workers waits for no more",
        [SLEEP, "pass", SLEEP],
        {"timeout_seconds": 0, "min_workers": 1},
        [1],
        {0: {"exit_code": None}, 2: {"exit_code": None}},
    ),
]


@pytest.mark.parametrize("row", DOCUMENTED, ids=lambda row: row.sentence)
def test_await_workers_does_what_is_documented(row: Documented) -> None:
    ids = [workers.launch_workers(1, **NO_SSH, code=code)[0]["id"] for code in row.codes]
    if row.codes[0] == SLEEP:
        workers.await_workers(ids[0], wait_for_completion=False, timeout_seconds=0)
    if row.codes[-1] == SLEEP:
        workers.await_workers(ids[-1], wait_for_completion=False, timeout_seconds=0)
    result = workers.await_workers(ids, **row.arguments)
    assert [one["id"] for one in result["workers"]] == [ids[position] for position in row.reached]
    assert all(re.fullmatch(r"127\.\d+\.\d+\.\d+", one["ip_address"]) for one in result["workers"])
    assert [one["id"] for one in result["failures"]] == [ids[position] for position in row.failed]
    for failure, expected in zip(result["failures"], row.failed.values(), strict=True):
        assert {key: failure[key] for key in expected} == expected
        assert failure["host"].startswith("127.")


def test_an_id_that_no_worker_has_is_a_failure() -> None:
    """In the original it is in neither list."""
    (launched,) = workers.launch_workers(1, **NO_SSH, code="pass")
    result = workers.await_workers(["nobody", launched])
    assert [one["id"] for one in result["workers"]] == [launched["id"]]
    assert [(one["id"], one["phase"]) for one in result["failures"]] == [("nobody", "launch")]


def test_list_workers_has_all_and_addresses_once_they_run() -> None:
    assert workers.list_workers() == []
    launched = workers.launch_workers(2, **NO_SSH, code=SLEEP)
    assert [one["ip_address"] for one in launched] == ["unknown", "unknown"]
    workers.await_workers(launched, wait_for_completion=False)
    listed = workers.list_workers()
    assert [(one["id"], one["status"]) for one in listed] == [(one["id"], "running") for one in launched]
    assert len({one["ip_address"] for one in listed}) == 2


def test_stop_workers_stops_the_named_ones_or_all() -> None:
    (done,) = workers.launch_workers(1, **NO_SSH, code="pass")
    workers.await_workers(done)
    first, second, third, fourth = workers.launch_workers(4, **NO_SSH, code=SLEEP)

    def statuses() -> list[str]:
        return [one["status"] for one in workers.list_workers()[1:]]

    workers.await_workers([first, second, third, fourth], wait_for_completion=False)
    assert workers.stop_workers([]) == []  # An empty list is not "no argument".
    with pytest.raises(InvalidArgumentError, match="no worker with the id nobody"):
        workers.stop_workers(first["id"], "nobody")
    assert statuses() == ["running"] * 4
    (stopped,) = workers.stop_workers(first["id"])
    assert (stopped["status"], stopped["signal"]) == ("stopped", "SIGTERM")
    workers.stop_workers(second, [third["id"]])
    assert statuses() == ["stopped"] * 3 + ["running"]
    workers.stop_workers()
    assert statuses() == ["stopped"] * 4
    assert workers.list_workers()[0]["status"] == "succeeded"
    failures = workers.await_workers([first, fourth])["failures"]
    assert [(one["status"], one["message"]) for one in failures] == [("stopped", "it was stopped")] * 2


def test_a_worker_that_ignores_sigterm_is_killed_with_what_it_has_started(
    monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    monkeypatch.setattr(_local, "GRACE_SECONDS", 1)
    code = (
        "import signal, time; signal.signal(15, signal.SIG_IGN)\n!setsid sleep 1000 &\nprint('deaf'); time.sleep(1000)"
    )
    (launched,) = workers.launch_workers(1, **NO_SSH, code=code)
    worker = _session.current().find(launched["id"])
    assert worker is not None
    wait_until("it is deaf", lambda: "deaf" in worker.lines)
    (stopped,) = workers.stop_workers(launched)
    assert stopped["status"] == "stopped"
    assert processes_with(session) == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 0}, InvalidArgumentError, "n is 0; a whole number from 1 to 1000"),
        ({"n": 1.5}, InvalidArgumentError, "n is 1.5"),
        ({"cpu": 0}, InvalidArgumentError, "cpu is 0; a number of cores above 0"),
        ({"memory": float("nan")}, InvalidArgumentError, "memory is nan"),
        ({"nvidia_gpu": -1}, InvalidArgumentError, "nvidia_gpu is -1"),
        ({"script": "nowhere.py"}, NotFoundError, "there is no script nowhere.py in"),
        ({"kernel": "scala"}, UnsupportedError, "workers run Python 3"),
        ({"env": {"A": 1}}, InvalidArgumentError, "env has 'A': 1; names and values must be strings"),
        ({"code": "#" * 200_000}, InvalidArgumentError, "give it as script"),
        ({"code": 5}, InvalidArgumentError, "code is 5; a text is needed"),
        ({"script": 5}, InvalidArgumentError, "script is 5; a text is needed"),
        ({"server": 5}, InvalidArgumentError, "server is 5; a text is needed"),
        ({"image": 5}, InvalidArgumentError, "image is 5; a name such as"),
        ({"image": b"python:3.12"}, InvalidArgumentError, "image is b'python:3.12'; a name such as"),
    ],
)
def test_bad_input_is_one_error_and_launches_nothing(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        workers.launch_workers(**{"n": 2, **NO_SSH, **arguments})
    assert workers.list_workers() == []


def test_a_program_that_cannot_be_launched_is_a_failure_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the original a launch that failed has no id, which await_workers stumbles over."""
    monkeypatch.setenv("GYRE_PROGRAM", "/nowhere/gyre")
    (launched,) = workers.launch_workers(1, **NO_SSH, code="pass")
    (failure,) = workers.await_workers([launched])["failures"]
    assert (failure["id"], failure["phase"], failure["status"]) == (launched["id"], "launch", "failed")
    assert "/nowhere/gyre" in failure["message"]


def test_a_python_that_does_not_exist_is_a_failure_of_the_start() -> None:
    (launched,) = workers.launch_workers(1, **NO_SSH, code="pass", python="/nowhere/python")
    (failure,) = workers.await_workers([launched])["failures"]
    assert (failure["phase"], failure["message"]) == ("start", "/nowhere/python: No such file or directory")


@pytest.mark.needs_programs("sshd")
def test_threads_can_launch_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    with ThreadPoolExecutor(4) as pool:
        launches = [pool.submit(workers.launch_workers, 1, 0.5, 0.5, nvidia_gpu=1, code=SLEEP) for _ in range(4)]
        launched = [launch.result()[0] for launch in launches]
    running = workers.await_workers(launched, wait_for_completion=False)["workers"]
    assert len({one["ip_address"] for one in running}) == 4
    assert None not in {one["ssh_port"] for one in running}


def test_a_worker_can_launch_workers(capfd: pytest.CaptureFixture[str]) -> None:
    """They end with it."""
    inner = f"launched = workers.launch_workers(1, 0.5, 0.4, ssh=False, code={SLEEP!r})"
    code = (
        f"from gyre import workers\n{inner}\n"
        "one = workers.await_workers(launched, False, 0)['workers'][0]\nprint(one['status'])"
    )
    result = workers.await_workers(workers.launch_workers(1, **NO_SSH, code=code), timeout_seconds=0)
    assert result["failures"] == []
    assert "[worker-0] running" in capfd.readouterr().out.splitlines()


def test_gpus_are_given_to_one_worker_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    code = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(1000)"
    launched = workers.launch_workers(3, **NO_SSH, nvidia_gpu=1, code=code)
    assert [one["status"] for one in launched[2:]] == ["failed"]
    assert launched[2]["message"] == "cannot launch it: GPUs: it needs 1, and 0 of the 2 here are free"
    found = [_session.current().find(one["id"]) for one in launched[:2]]
    wait_until("both have said which", lambda: [list(one.lines) for one in found if one] == [["4"], ["6"]])
    workers.stop_workers(launched[0])
    (without,) = workers.launch_workers(1, **NO_SSH, code="import os; exit(os.environ['CUDA_VISIBLE_DEVICES'] != '')")
    (again,) = workers.launch_workers(1, **NO_SSH, nvidia_gpu=1, code="pass")
    assert len(workers.await_workers([without, again])["workers"]) == 2


def test_workers_find_their_session_as_on_the_platform() -> None:
    """Each worker has an address of its own, and reaches the session at CDSW_MASTER_IP."""
    code = """
import os, socket
own = (os.environ["CDSW_IP_ADDRESS"], 0)
with socket.create_connection((os.environ["CDSW_MASTER_IP"], PORT), source_address=own) as link:
    link.sendall(os.environ["CDSW_ENGINE_ID"].encode())
"""
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        server.listen()
        launched = workers.launch_workers(2, **NO_SSH, code=code.replace("PORT", str(server.getsockname()[1])))
        heard = {}
        for _ in launched:
            link, (address, _) = server.accept()
            with link:
                heard[link.recv(100).decode()] = address
    listed = workers.await_workers(launched)["workers"]
    assert heard == {one["id"]: one["ip_address"] for one in listed}


FILL = "x = bytearray(300 << 20); print('no limit')"


def test_memory_and_cores_are_limited_by_cgroups() -> None:
    burn = (
        "import pathlib, time\nwhile time.process_time() < 0.5: pass\n"
        "print([line for line in open('/proc/self/cgroup') if 'gyre-worker' in line])"
    )
    launched = workers.launch_workers(1, 0.25, 0.2, code=FILL, ssh=False)
    launched += workers.launch_workers(1, 0.25, 0.2, code=burn, ssh=False)
    if "by a cgroup" not in launched[0]["limits"]:  # Not root, or a container without cgroups.
        assert "because this user cannot make memory cgroups" in launched[0]["limits"]
        return
    assert launched[0]["limits"] == "memory 0.2 GB by a cgroup, 0.25 cores by a cgroup"
    burning = _session.current().find(launched[1]["id"])
    assert burning is not None
    statistics = Path(burning.limits.cgroups[-1]) / "cpu.stat"

    def throttled() -> int:
        return int(re.findall(r"nr_throttled (\d+)", statistics.read_text())[0])

    wait_until("its cores are limited", lambda: throttled() > 0)
    result = workers.await_workers(launched)
    assert [one["id"] for one in result["workers"]] == [launched[1]["id"]]
    (failure,) = result["failures"]
    assert failure["signal"] == "SIGKILL"
    assert failure["message"] == "it exceeded its memory limit of 0.2 GB, and the kernel killed a process of it"


def test_without_cgroups_each_process_is_limited_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As for a user who cannot make cgroups."""
    monkeypatch.setattr(_limits, "_parents", lambda _: iter(()))
    launched = workers.launch_workers(1, 1, 0.2, code=FILL, ssh=False)
    launched += workers.launch_workers(1, 1, 0.2, code="import os; print(len(os.sched_getaffinity(0)))", ssh=False)
    result = workers.await_workers(launched)
    (failure,) = result["failures"]
    assert failure["message"] == "it exited with code 1; its last line: MemoryError"
    shown = capfd.readouterr()
    assert "[worker-1] 1" in shown.out.splitlines()
    assert shown.err.count("[gyre.workers] limits of") == 1
    assert "limits of worker-0: memory 0.2 GB for each process by RLIMIT_DATA, because" in shown.err


SESSION = f"""
import os, signal, sys, time
from gyre import workers
launched = workers.launch_workers(2, 0.5, 0.5, ssh=False, code={SLEEP!r})
assert len(workers.await_workers(launched, wait_for_completion=False)["workers"]) == 2
print("up", flush=True)
"""


@pytest.mark.parametrize(
    "end", ["sys.exit(5)", "raise KeyError", "os.kill(os.getpid(), 15)", "os.kill(os.getpid(), 9)"]
)
def test_workers_end_with_their_session(session: str, end: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SESSION + end], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "up\n", done.stderr
    wait_until("its workers have ended", lambda: processes_with(session) == [])
    wait_until("nothing else is left", lambda: list(tmp_path.glob("gyre-workers-*")) == [])


def test_workers_of_a_session_survive_the_end_of_a_fork_of_it() -> None:
    launched = workers.launch_workers(1, **NO_SSH, code=SLEEP)
    workers.await_workers(launched, wait_for_completion=False)
    process = os.fork()
    if process == 0:
        os._exit(0 if workers.list_workers() == [] else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert workers.list_workers()[0]["status"] == "running"


@pytest.mark.needs_programs("sshd")
@pytest.mark.parametrize("launcher", ["gyre run", "horovodrun"])
def test_ranks_are_started_on_workers_through_ssh(launcher: str) -> None:
    """The article's `horovodrun -np N -H host:slots,… -p 2222`, and `gyre run` in its place."""
    launched = workers.launch_workers(2, **SMALL, code=SLEEP)
    running = workers.await_workers([one["id"] for one in launched], wait_for_completion=False)["workers"]
    assert len(running) == 2
    hosts = ",".join(f"{one['ip_address']}:2" for one in running)
    command = [*launcher.split(), "-np", "4", "-H", hosts, "-p", str(running[0]["ssh_port"])]
    show = "echo $GYRE_RANK of $GYRE_SIZE on $CDSW_ENGINE_ID; grep -om 1 gyre-worker.* /proc/self/cgroup"
    done = subprocess.run([*command, "sh", "-c", show], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    ids = [one["id"] for one in running]
    said = [line for line in sorted(done.stdout.splitlines()) if "of" in line]
    assert said == [f"[{rank}] {rank} of 4 on {ids[rank // 2]}" for rank in range(4)]
    if "memory 0.5 GB by a cgroup" in running[0]["limits"]:
        within = sorted(line for line in done.stdout.splitlines() if "gyre-worker" in line)
        assert [line.rpartition("-worker-")[2] for line in within] == ["0", "0", "1", "1"]


def test_a_worker_has_horovodrun_and_one_that_is_installed_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "!horovodrun -np 2 sh -c 'echo rank $HOROVOD_RANK of $HOROVOD_SIZE'"
    (running,) = workers.await_workers(workers.launch_workers(1, **NO_SSH, code=code))["workers"]
    said = sorted(line.partition("] ")[2] for line in capfd.readouterr().out.splitlines())
    assert said == ["[0] rank 0 of 2", "[1] rank 1 of 2"]
    (tmp_path / "horovodrun").write_text("#!/bin/sh\necho installed\n")
    (tmp_path / "horovodrun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    workers.await_workers(workers.launch_workers(1, **NO_SSH, code=code))
    assert capfd.readouterr().out == "[worker-1] installed\n"
    assert running["status"] == "succeeded"


@pytest.mark.needs_programs("sshd")
def test_ranks_on_workers_add_up(gyre: Path) -> None:
    """A Horovod-shaped script on two hosts, which are the workers."""
    launched = workers.launch_workers(2, cpu=1, memory=2)
    running = workers.await_workers(launched, wait_for_completion=False)["workers"]
    hosts = ",".join(one["ip_address"] for one in running)
    code = "import gyre.torch as hvd, torch; hvd.init(); print(int(hvd.allreduce(torch.ones(3), op=hvd.Sum)[0]))"
    command = [str(gyre), "run", "-np", "2", "-H", hosts, "-p", str(running[0]["ssh_port"]), sys.executable, "-c", code]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 2", "[1] 2"]


@pytest.mark.needs_programs("sshd")
def test_a_login_ends_with_its_worker() -> None:
    launched = workers.launch_workers(1, **SMALL, code=SLEEP)
    (running,) = workers.await_workers(launched, wait_for_completion=False)["workers"]
    # setsid, so that it would survive the end of the connection.
    login = subprocess.Popen(
        ["ssh", running["ip_address"], "setsid sleep 1000 & echo in; sleep 1000"], stdout=subprocess.PIPE, text=True
    )
    assert login.stdout is not None
    assert login.stdout.readline() == "in\n"
    workers.stop_workers(launched)
    assert login.wait(timeout=60) != 0
    login.stdout.close()
