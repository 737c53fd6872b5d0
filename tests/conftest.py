"""What the tests of whole programs share: where the programs are, jobs that are watched from outside, a job server."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import pytest
from evidence import FILES, LONGEST_SHOWN
from job_server import JobServer
from running_job import LONGEST_WAIT_SECONDS, Job, StartJob
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

pytest_plugins = ["cpu_time", "leftovers"]

ROOT = Path(__file__).resolve().parent.parent
# ./dev test runs the tests in several processes. Tests that share something dear - ranks that have torch, an ssh
# server, a wheel, a build, network namespaces - stay together in one of them.
TOGETHER = (
    "tests/device",
    "tests/python",
    "tests/tensorflow/keras",
    "tests/tensorflow",
    "tests/cluster",
    "tests/security/attacker_test.py",
    "tests/security/store_test.py",
    "tests/e2e/cpp_test.py",
    "tests/e2e/engines_test.py",
    "tests/e2e/environments_test.py",
    "tests/e2e/page_hosts_test.py",
    "tests/e2e/params_python_test.py",
    "tests/e2e/run_as_others_test.py",
    "tests/e2e/slurm_driver_test.py",
    "tests/e2e/ssh_containers_test.py",
    "tests/e2e/ssh_driver_test.py",
    "tests/e2e/ssh_hosts_test.py",
    "tests/e2e/wheel_test.py",
)
# Tests that wait more than they compute (./dev test --durations): `--waiting-process` gives them a process of their own
# beside those that keep the cores busy.
WAITING = (
    "tests/conformance/data",
    "tests/conformance/params",
    "tests/e2e/bench_data_test.py",
    "tests/e2e/chaos_test.py",
    "tests/e2e/engines_test.py",
    "tests/e2e/full_disk_test.py",
    "tests/e2e/job_keras_test.py",
    "tests/e2e/job_mpi_test.py",
    "tests/e2e/job_servers_test.py",
    "tests/e2e/job_tensorflow_test.py",
    "tests/e2e/jobs_client_test.py",
    "tests/e2e/live_view_test.py",
    "tests/e2e/page_service_test.py",
    "tests/e2e/read_from_sources_test.py",
    "tests/e2e/run_cluster_test.py",
    "tests/e2e/run_staging_test.py",
    "tests/e2e/server_test.py",
    "tests/e2e/slurm_driver_test.py",
    "tests/e2e/ssh_containers_test.py",
    "tests/e2e/ssh_driver_test.py",
    "tests/e2e/ssh_hosts_test.py",
    "tests/e2e/stage_test.py",
    "tests/e2e/store_mount_test.py",
    "tests/e2e/store_test.py",
    "tests/e2e/top_test.py",
    "tests/e2e/unreachable_node_test.py",
    "tests/e2e/upload_test.py",
    "tests/e2e/workers_containers_test.py",
    "tests/e2e/workers_jobs_test.py",
    "tests/security/accounts_test.py",
    "tests/security/attacker_test.py",
    "tests/security/attempt_process_test.py",
    "tests/security/limits_test.py",
    "tests/security/store_test.py",
    "tests/tools/bad_tests_test.py",
)

# How tools/dev/junit_counts.py recognises a test that was left out.
NEEDS_ROOT = "needs root"


class TogetherScheduling(LoadScopeScheduling):
    """One test after the other to whoever is free, and what stays together at once."""

    _for_waiting: WorkerController | None = None

    def schedule(self) -> None:
        if self.config.option.waiting_process and self.collection is None and len(self.nodes) > 1:
            self._for_waiting = self.nodes[-1]
        super().schedule()

    def _assign_work_unit(self, node: WorkerController) -> None:
        """The first unit of the node's kind; the busy processes take the others too when theirs are done."""
        waiting = node is self._for_waiting
        scope = next((one for one in self.workqueue if one.startswith(WAITING) == waiting), None)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        elif waiting:
            node.shutdown()
            return
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        return next((place for place in TOGETHER if nodeid.startswith(place)), nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that ended its process, if one did: it has failed. (xdist would run it again, and again.)"""
        work = self.assigned_work.pop(node)
        left = [(unit, test) for unit in work.values() for test, done in unit.items() if not done]
        if not left:
            return None
        unit, crashed = left[0]
        unit[crashed] = True
        self.workqueue.update({scope: unit for scope, unit in work.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """A process begins a test only when it knows the next one, or that there is none. (One that has come in place
        of another would be given one test by xdist, and wait for ever.)"""
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        if not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> TogetherScheduling:
    # Not by xdist's marks (--dist loadgroup): of version 3.8 they have no effect with pytest 9.
    return TogetherScheduling(config, log)


def pytest_configure() -> None:
    # Of a run in the background of a shell script the programs under test would inherit that Ctrl-C is ignored.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--waiting-process", action="store_true", help="one of the processes runs only tests that mostly wait"
    )
    parser.addoption("--clean-tree", help="try the wheel in a copy of this Debian (tools/clean_tree.py made it)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Somebody who is not root gets a run without the tests that only root can run or install the programs of."""
    if os.geteuid() == 0:
        return
    for item in items:
        wanted = [name for mark in item.iter_markers("needs_programs") for name in mark.args]
        missing = [name for name in wanted if shutil.which(name) is None]
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"{NEEDS_ROOT} to install {', '.join(missing)}"))
        elif item.get_closest_marker("needs_root") is not None:
            item.add_marker(pytest.mark.skip(reason=NEEDS_ROOT))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what its jobs and ranks have said: CI keeps nothing else of them."""
    report = yield
    if report.when == "call" and report.failed:
        for path in item.stash.get(FILES, []):
            if path.exists() and path.stat().st_size > 0:
                text = path.read_text(encoding="utf-8", errors="replace")
                report.sections.append((path.name, text[-LONGEST_SHOWN:]))
    return report


@pytest.fixture(scope="session")
def gyre() -> Path:
    """The program under test: the one in PATH, which ./dev test points at the build, else the release build's."""
    built = ROOT / "build" / "release" / "bin" / "gyre"
    found = shutil.which("gyre")
    program = Path(found) if found else built
    assert program.exists(), "there is no `gyre` in PATH nor in build/release/bin; run `./dev build` first"
    return program


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> list[Path]:
    """Files to show when the test fails."""
    node: pytest.Item = request.node
    return node.stash.setdefault(FILES, [])


@pytest.fixture
def start_job(gyre: Path, tmp_path: Path, evidence: list[Path]) -> Iterator[StartJob]:
    """Starts `gyre run ARGUMENTS…` in the test's folder. What is left of it at the test's end fails the test."""
    jobs: list[Job] = []

    def start(*arguments: str, env: Mapping[str, str] | None = None, timeout: float = LONGEST_WAIT_SECONDS) -> Job:
        job = Job([str(gyre), "run", *arguments], tmp_path, env or {}, timeout)
        jobs.append(job)
        evidence.extend((job.stdout_path, job.stderr_path))
        return job

    yield start
    left = [(job.process.args, job.processes()) for job in jobs]
    for job in jobs:
        job.end()
    assert not any(processes for _, processes in left), f"left behind: {left}"


@pytest.fixture
def job_server(gyre: Path, tmp_path: Path, evidence: list[Path]) -> Iterator[JobServer]:
    """One that has not been started."""
    server = JobServer(gyre, tmp_path)
    evidence.append(server.log)
    yield server
    server.close()


@pytest.fixture
def server(job_server: JobServer) -> JobServer:
    job_server.start()
    return job_server
