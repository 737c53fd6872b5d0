"""Jobs of Batch AI whose processes are TensorFlow's own: its servers, at the places that the job gives them, and its
workers find each other and train. Needs .venv/tensorflow, as tests/tensorflow does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from article_job import make_share
from keras_job import run_job

# In the manner of TensorFlow's mnist_replica.py, which Batch AI's recipe ran: a graph whose variables are on the
# servers and whose operations are on the worker, asynchronous. A small model in place of MNIST's.
PARAMETER_SERVERS = """
import argparse

import numpy as np
import tensorflow.compat.v1 as tf

parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
parser.add_argument("--ps_hosts")
parser.add_argument("--worker_hosts")
arguments = parser.parse_args()
cluster = tf.train.ClusterSpec({"ps": arguments.ps_hosts.split(","), "worker": arguments.worker_hosts.split(",")})
server = tf.train.Server(cluster, job_name=arguments.job_name, task_index=arguments.task_index)
if arguments.job_name == "ps":
    server.join()
worker = f"/job:worker/task:{arguments.task_index}"
with tf.Graph().as_default():
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        inputs = tf.placeholder(tf.float32, [None, 8])
        targets = tf.placeholder(tf.float32, [None, 1])
        weights = tf.get_variable("weights", [8, 1], initializer=tf.zeros_initializer())
        bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(inputs, weights) + bias - targets))
        train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
    places = sorted({variable.device for variable in (weights, bias, step)})
    random, truth, mine = np.random.default_rng(arguments.task_index), np.arange(8).reshape(8, 1), 0
    filters = tf.ConfigProto(device_filters=["/job:ps", worker])  # A worker waits for no other worker.
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=arguments.task_index == 0,
        hooks=[tf.train.StopAtStepHook(last_step=300)],
        config=filters,
    ) as session:
        while not session.should_stop():
            batch = random.standard_normal((16, 8))
            reached, _ = session.run([loss, train], {inputs: batch, targets: batch @ truth + 1})
            mine += 1
    print(f"worker {arguments.task_index}: variables on {' '.join(places)}, {mine} steps, trained {reached < 1e-3}")
"""

# What a strategy of today wants of TF_CONFIG is not what Batch AI wrote: all its workers are of one type.
MIRRORED = """
import json
import os

config = json.loads(os.environ["TF_CONFIG"])
if config["task"]["type"] == "master":
    config["task"]["type"] = "worker"
    os.environ["TF_CONFIG"] = json.dumps(config)

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weights = tf.Variable(tf.zeros([8, 1]))


@tf.function
def step(inputs, targets):
    def replica(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(inputs @ weights - targets))
        gradient = tape.gradient(loss, weights)
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)

    weights.assign_sub(0.05 * strategy.run(replica, (inputs, targets)))


place = strategy.cluster_resolver.task_id
random, truth = np.random.default_rng(place), np.arange(8, dtype="float32").reshape(8, 1)
for _ in range(200):
    inputs = random.standard_normal((16, 8)).astype("float32")
    step(tf.constant(inputs), tf.constant(inputs @ truth))
values = weights.numpy()
print(f"worker {place} of {strategy.num_replicas_in_sync}: trained {np.abs(values - truth).max() < 1e-2},"
      f" {values.tobytes().hex()}")
"""


@pytest.fixture
def share() -> Iterator[Path]:
    with make_share() as folder:
        yield folder


def logs_of(share: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in share.glob("**/stdouterr/stdout-*.txt")}


def test_tensorflows_workers_train_through_its_parameter_servers(gyre: Path, share: Path) -> None:
    hosts = "--ps_hosts=$AZ_BATCHAI_PS_HOSTS --worker_hosts=$AZ_BATCHAI_WORKER_HOSTS"
    block = {
        "tensorFlowSettings": {
            "masterCommandLineArgs": f"--job_name=worker --task_index=0 {hosts}",
            "workerCommandLineArgs": f"--job_name=worker --task_index=$AZ_BATCHAI_TASK_INDEX {hosts}",
            "parameterServerCommandLineArgs": f"--job_name=ps --task_index=$AZ_BATCHAI_TASK_INDEX {hosts}",
            "workerCount": 2,
            "parameterServerCount": 2,
        }
    }
    run_job(gyre, share, PARAMETER_SERVERS, 2, block)
    logs = logs_of(share)
    assert sorted(logs) == ["stdout-ps-0.txt", "stdout-ps-1.txt", "stdout-wk-0.txt", "stdout-wk-1.txt"]
    steps = 0
    for worker in range(2):
        said = re.search(
            rf"worker {worker}: variables on /job:ps/task:0 /job:ps/task:1, (\d+) steps, trained True",
            logs[f"stdout-wk-{worker}.txt"],
        )
        assert said, logs
        steps += int(said[1])
    assert steps >= 300


def test_workers_of_a_mirrored_strategy_train_alike(gyre: Path, share: Path) -> None:
    block = {"tensorFlowSettings": {"workerCount": 2, "parameterServerCount": 0}}
    run_job(gyre, share, MIRRORED, 2, block)
    logs = logs_of(share)
    found = [re.search(r"worker (\d) of 2: trained True, (\w+)", text) for _, text in sorted(logs.items())]
    assert [one and one[1] for one in found] == ["0", "1"], logs
    assert len({one[2] for one in found if one}) == 1
