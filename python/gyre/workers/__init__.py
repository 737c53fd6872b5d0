"""Workers of a session: programs with cores and memory of their own, launched from a script or a notebook.

    from gyre import workers

    launched = workers.launch_workers(n=2, cpu=1, memory=2, script="train.py")
    result = workers.await_workers(launched, timeout_seconds=0)

The functions are those of the workers API of Cloudera's data-science platforms (`import cdsw`), run_cluster,
tensorboard and tensorflow_worker_code those of its utility for TensorFlow. Guide: docs/guide/workers.md. Linux only;
needs only the standard library.
"""

from gyre.workers._api import await_workers, launch_workers, list_workers, stop_workers
from gyre.workers._cluster import run_cluster, tensorflow_worker_code
from gyre.workers._errors import ClusterError, ClusterRunError, ClusterStartError
from gyre.workers._objects import ClusterSpec, Server
from gyre.workers._tensorboard import tensorboard

__all__ = [
    "ClusterError",
    "ClusterRunError",
    "ClusterSpec",
    "ClusterStartError",
    "Server",
    "await_workers",
    "launch_workers",
    "list_workers",
    "run_cluster",
    "stop_workers",
    "tensorboard",
    "tensorflow_worker_code",
]
