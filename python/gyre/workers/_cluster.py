"""run_cluster: workers and parameter servers that know each other's addresses."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gyre.errors import InvalidArgumentError
from gyre.workers import _session
from gyre.workers._containers import PYTHON, Image, container_of
from gyre.workers._errors import ClusterError, ClusterRunError, ClusterStartError, message_of
from gyre.workers._objects import OURS, TENSORFLOW
from gyre.workers._requests import check_count, check_environment, check_resources, check_timeout, job_place
from gyre.workers._worker import Request, Worker

Spec = dict[str, list[str]]

_EXIT_SECONDS = 5.0  # For a task that has reported its failure to end by itself.
_LEAVING_SECONDS = 60.0  # For a worker that has returned; its exit handlers may have something to write.


def run_cluster(
    n_workers: int,
    n_ps: int,
    cpu: float,
    memory: float,
    nvidia_gpu: int = 0,
    worker_script: str | None = None,
    timeout_seconds: float = 60,
    *,
    run_timeout_seconds: float = 0,
    env: Mapping[str, str] | None = None,
    tensorflow: bool | None = None,
    python: str | None = None,
    server: str | None = None,
    cluster: str | None = None,
    image: Image | None = None,
) -> tuple[Spec | None, str | None]:
    """Starts a cluster of `n_workers` workers and `n_ps` parameter servers, with `cpu` cores and `memory` GB each and
    `nvidia_gpu` GPUs for each worker. All tasks are started at the same time.

    With `worker_script`, the name of a Python module, each worker imports it and calls its function
    run(cluster, server, task_index). When all workers have returned, the parameter servers are ended, and (None, None)
    is returned. Without it, all tasks only run their servers; returns the addresses, {"worker": ["host:port", …], "ps":
    […]}, and the first worker's target, "grpc://host:port", as soon as all of them listen. stop_workers() or the end of
    this process ends them.

    `cluster` and `server` are a tf.train.ClusterSpec and a tf.distribute.Server if TensorFlow is installed, else
    ClusterSpec and Server of gyre.workers; `tensorflow` chooses. A parameter server without TensorFlow calls the
    module's serve(cluster, server, task_index) if there is one. `python`, `server`, `cluster` and `image`: as in
    launch_workers; an image needs Gyre's Python package, or the folder of the module has it.

    `timeout_seconds` is for the start of the whole cluster, `run_timeout_seconds` for what comes after it; 0: no limit.
    ClusterStartError and ClusterRunError have a list of `failures`; when they are raised, or any other exception, all
    tasks have ended. Thread-safe.
    """
    check_count("n_workers", n_workers, 1)
    check_count("n_ps", n_ps, 0)
    check_resources(cpu, memory, nvidia_gpu)
    check_timeout("timeout_seconds", timeout_seconds)
    check_timeout("run_timeout_seconds", run_timeout_seconds)
    if worker_script is not None and not all(part.isidentifier() for part in worker_script.split(".")):
        raise InvalidArgumentError(
            f"worker_script is {worker_script!r}; the name of a Python module is needed, such as 'train' for train.py"
        )
    framework = {None: "", True: TENSORFLOW, False: OURS}[tensorflow]
    place = job_place(server, cluster, contained=image is not None)
    task = Request(
        command=None, environment=check_environment(env or {}), cpu=cpu, memory=memory, ssh=False,
        task=(framework, worker_script or ""), place=place,
        python=python or (sys.executable if image is None else PYTHON),
        container=container_of(image, place, nvidia_gpu, ""),
    )  # fmt: skip
    tasks = _Cluster(timeout_seconds)
    try:
        for role, count, gpus in (("worker", n_workers, nvidia_gpu), ("ps", n_ps, 0)):
            tasks.launch(task, role, count, gpus)
        spec = tasks.start()
        if worker_script is None:
            return spec, f"grpc://{spec['worker'][0]}"
        tasks.run(run_timeout_seconds)
    except BaseException:
        tasks.stop()
        raise
    tasks.stop()
    return None, None


def tensorflow_worker_code(directory: str | os.PathLike[str], job_name: str, script: str | None = None) -> str:
    """The code for launch_workers(code=…) of one job of a cluster, "worker" or "ps", for programs that start the
    cluster themselves; run_cluster does all of this.

    Each task waits for `directory`/cluster.json with the addresses of all tasks, {"worker": ["host:port", …], "ps":
    […]}, which must appear complete (write another file and rename it). It finds itself there by its `ip_address`. A
    worker then calls run(cluster, server, task_index) of the module `script`. Without `script`, and as a parameter
    server, a task runs its server until stop_workers(). ValueError for another job_name.
    """
    if job_name not in ("worker", "ps"):
        raise InvalidArgumentError(f"job_name is {job_name!r}; it must be 'worker' or 'ps'")
    where = os.path.abspath(directory)
    return f"from gyre.workers._file_task import run\nrun({where!r}, {job_name!r}, {script!r})\n"


class _Cluster:
    def __init__(self, timeout_seconds: float) -> None:
        self._session = _session.current()
        self._timeout_seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds if timeout_seconds > 0 else None
        self._tasks: list[Worker] = []

    def launch(self, task: Request, role: str, count: int, gpus: int) -> None:
        for index in range(count):
            request = replace(task, gpus=gpus, name=role, role=role, index=index, label=f"{role} {index}")
            self._tasks.append(self._session.launch(request))

    def start(self) -> Spec:
        """Returns when all tasks are ready, and lets them go. ClusterStartError."""
        self._await_all(lambda task: "address" in task.task)
        spec: Spec = {}
        for task in self._tasks:
            spec.setdefault(task.request.role, []).append(task.task["address"])
        self._tell_all({"cluster": spec})
        self._await_all(lambda task: "ready" in task.task)
        self._tell_all({"go": True})
        return spec

    def run(self, timeout_seconds: float) -> None:
        """Returns when all workers have succeeded. ClusterRunError."""
        deadline = time.monotonic() + timeout_seconds if timeout_seconds > 0 else None
        workers = [task for task in self._tasks if task.request.role == "worker"]

        def finished() -> bool:
            return self._has_failed() or all(_has_returned(worker) for worker in workers)

        in_time = self._session.wait(finished, deadline)
        if not in_time:
            what = f"it was still running after {timeout_seconds:g} s"
            raise self._late_error(
                ClusterRunError, "finish", lambda task: task in workers and not _has_returned(task), what
            )
        if not self._has_failed():
            self._tell_all({"end": True})
            self._session.wait(
                lambda: self._has_failed() or all(worker.has_ended for worker in workers),
                time.monotonic() + _LEAVING_SECONDS,
            )
        if self._has_failed():
            raise self._failure_error(ClusterRunError, "the cluster failed")

    def stop(self) -> None:
        self._session.stop(self._tasks)

    def _await_all(self, is_there: Callable[[Worker], bool]) -> None:
        def finished() -> bool:
            return self._has_failed() or all(is_there(task) for task in self._tasks)

        in_time = self._session.wait(finished, self._deadline)
        if not in_time:
            what = f"it was not ready {self._timeout_seconds:g} s after the launch; phase: {{phase}}"
            raise self._late_error(ClusterStartError, "start", lambda task: not is_there(task), what)
        if self._has_failed():
            raise self._failure_error(ClusterStartError, "the cluster did not start")

    def _tell_all(self, message: Mapping[str, Any]) -> None:
        for task in self._tasks:
            self._session.send(task, message)

    def _has_failed(self) -> bool:
        return any(_failed(task) for task in self._tasks)

    def _failure_error(self, kind: type[ClusterError], what: str) -> ClusterError:
        """Ends all tasks, and makes the error of those that failed by themselves."""
        with self._session.changed:
            failed = [task for task in self._tasks if _failed(task)]
        # A task that has reported an exception is about to exit; its exit code is evidence.
        self._session.wait(lambda: all(task.has_ended for task in failed), time.monotonic() + _EXIT_SECONDS)
        self.stop()
        with self._session.changed:
            failures = [task.failure(message=_early_end(task)) for task in failed]
        return kind(message_of(what, failures), failures)

    def _late_error(
        self, kind: type[ClusterError], goal: str, is_late: Callable[[Worker], bool], message: str
    ) -> ClusterError:
        """Ends all tasks, and makes the error of those that are late. {phase} in the message: how far each has come."""
        with self._session.changed:
            late = {task.id: task.phase for task in self._tasks if is_late(task)}
        self.stop()
        with self._session.changed:
            failures = [
                task.failure("timeout", message.format(phase=late[task.id])) for task in self._tasks if task.id in late
            ]
        return kind(message_of(f"the cluster did not {goal} in time", failures), failures)


def _has_returned(task: Worker) -> bool:
    return task.has_ended or "returned" in task.task


def _failed(task: Worker) -> bool:
    """Only a worker that was ready may end, with exit code 0."""
    if "failure" in task.task:
        return True
    return task.has_ended and (task.status != "succeeded" or task.request.role == "ps" or "ready" not in task.task)


def _early_end(task: Worker) -> str | None:
    if task.status == "succeeded":
        return "it ended before " + ("the workers did" if "ready" in task.task else "the cluster had started")
    return None
