"""TensorFlow's ParameterServerStrategy: the first ranks are its parameter servers, then come workers; the last rank is
the coordinator. Needs TensorFlow, and nothing of Gyre."""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from pathlib import Path
from typing import Any

_POLL_SECONDS = 0.05
_LONGEST_SECONDS = 300
_WARM_UP = 2
_LEAST_ROUNDS = 3


def _wait_for(path: Path) -> str:
    """The file's contents when it is there, and whole."""
    until = time.monotonic() + _LONGEST_SECONDS
    while not path.exists():
        if time.monotonic() > until:
            raise SystemExit(f"{path} was not written within {_LONGEST_SECONDS} s")
        time.sleep(_POLL_SECONDS)
    return path.read_text()


def _write(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text)
    draft.rename(path)


def _cluster(store: str, rank: int, servers: int, size: int) -> dict[str, list[str]]:
    """Addresses of all tasks, after this rank has chosen its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        _write(Path(f"{store}.{rank}"), f"127.0.0.1:{free.getsockname()[1]}")
    addresses = [_wait_for(Path(f"{store}.{other}")) for other in range(size)]
    return {"ps": addresses[:servers], "worker": addresses[servers:-1], "chief": addresses[-1:]}


def _measure(tf: Any, cluster: dict[str, list[str]], size_bytes: int, seconds: float) -> float:
    """Median microseconds of a round, in which each worker pulls the variable and pushes a gradient of its size."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    servers, workers = len(cluster["ps"]), len(cluster["worker"])
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(servers) if servers > 1 else None
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(tf.zeros([size_bytes // 4]))
    shards = variable.variables if servers > 1 else [variable]

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> None:
        # A value that the worker alone knows is added, or all of it would take place on the server.
        nothing = tf.cast(tf.timestamp() * 0, tf.float32)
        for shard in shards:
            shard.assign_sub(shard.read_value() + nothing)

    def once() -> float:
        start = time.perf_counter()
        for _ in range(workers):
            coordinator.schedule(step)
        coordinator.join()
        return (time.perf_counter() - start) * 1e6

    for _ in range(_WARM_UP):
        once()
    rounds = max(_LEAST_ROUNDS, int(seconds * 1e6 / once()))
    return statistics.median(once() for _ in range(rounds))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--store", required=True, help="prefix of the files through which the ranks find each other")
    parser.add_argument("--result", type=Path, required=True)
    arguments = parser.parse_args()
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf  # noqa: PLC0415 - takes seconds, and reads the variable

    cluster = _cluster(arguments.store, rank, arguments.servers, size)
    done = Path(f"{arguments.store}.done")
    if rank < size - 1:
        job, task = ("ps", rank) if rank < arguments.servers else ("worker", rank - arguments.servers)
        server = tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=task, protocol="grpc")
        _wait_for(done)
        del server
    else:
        try:
            step_us = _measure(tf, cluster, arguments.bytes, arguments.seconds)
            _write(arguments.result, json.dumps({"step_us": step_us}))
        finally:
            _write(done, "")
    os._exit(0)  # TensorFlow's servers cannot be stopped.


if __name__ == "__main__":
    main()
