"""What run(cluster, server, task_index) gets: TensorFlow's objects, or where it is not installed objects with the same
fields."""

from __future__ import annotations

import importlib
import importlib.util
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gyre.errors import InvalidArgumentError

# Whose objects a task gets.
OURS = "gyre"
TENSORFLOW = "tensorflow"


class ClusterSpec:
    """The tasks of a cluster: job names ("worker", "ps") with the addresses of their tasks, in the order of their
    indices. The fields are those of tf.train.ClusterSpec. Immutable."""

    def __init__(self, cluster: Mapping[str, Sequence[str]]) -> None:
        self._tasks = {str(job): [str(address) for address in tasks] for job, tasks in cluster.items()}

    @property
    def jobs(self) -> list[str]:
        return list(self._tasks)

    def as_dict(self) -> dict[str, list[str]]:
        return {job: list(tasks) for job, tasks in self._tasks.items()}

    def job_tasks(self, job_name: str) -> list[str]:
        """The addresses of a job's tasks; ValueError if there is no such job."""
        if job_name not in self._tasks:
            raise InvalidArgumentError(f"the cluster has no job '{job_name}', only {', '.join(self._tasks)}")
        return list(self._tasks[job_name])

    def num_tasks(self, job_name: str) -> int:
        return len(self.job_tasks(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        return list(range(self.num_tasks(job_name)))

    def task_address(self, job_name: str, task_index: int) -> str:
        """ "host:port"; ValueError if there is no such task."""
        tasks = self.job_tasks(job_name)
        if not 0 <= task_index < len(tasks):
            raise InvalidArgumentError(f"the job '{job_name}' has {len(tasks)} tasks and no task {task_index}")
        return tasks[task_index]

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._tasks == other._tasks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ClusterSpec({self._tasks!r})"


class Server:
    """This task's place in its cluster. The fields are those of tf.distribute.Server, and `listener`: the socket that
    listens at this task's address, for protocols of your own."""

    def __init__(self, cluster: ClusterSpec, job_name: str, task_index: int, listener: socket.socket) -> None:
        self.cluster = cluster
        self.job_name = job_name
        self.task_index = task_index
        self.listener = listener

    @property
    def target(self) -> str:
        """ "grpc://host:port", the address of this task in the form of TensorFlow's servers."""
        return f"grpc://{self.cluster.task_address(self.job_name, self.task_index)}"

    def start(self) -> None:
        """Does nothing; the server listens from the beginning."""

    def join(self) -> None:
        """Waits until the process is ended. run_cluster ends the ps tasks when all workers have returned."""
        threading.Event().wait()


def framework_here() -> str:
    """Whose objects a task gets in this process unless it is told."""
    return TENSORFLOW if importlib.util.find_spec("tensorflow") else OURS


def make_objects(
    framework: str, spec: Mapping[str, Sequence[str]], job_name: str, task_index: int, listener: socket.socket
) -> tuple[Any, Any]:
    """The cluster, and the server of this task, at whose address `listener` listens."""
    if framework == OURS:
        cluster = ClusterSpec(spec)
        return cluster, Server(cluster, job_name, task_index, listener)
    tensorflow = importlib.import_module("tensorflow")
    listener.close()  # For TensorFlow's server, which makes its own.
    theirs = tensorflow.train.ClusterSpec(spec)
    return theirs, tensorflow.distribute.Server(theirs, job_name=job_name, task_index=task_index)
