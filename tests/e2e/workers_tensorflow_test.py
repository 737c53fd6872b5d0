"""The objects of run_cluster: ours and TensorFlow's. GYRE_TEST_TENSORFLOW can name a Python that has TensorFlow. Then
its objects are asked the same questions, and article 002's training runs on them."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gyre.datasets import cifar10
from worker_session import PACKAGE, processes_with, worker_session

from gyre import workers

SUPPORT = Path(__file__).resolve().parents[1] / "support"
TENSORFLOW = os.environ.get("GYRE_TEST_TENSORFLOW")
LONG = 300


@pytest.fixture(autouse=True)
def session(gyre: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The marker of what the test's workers start."""
    with worker_session(gyre, tmp_path, monkeypatch) as marker:
        yield marker


# What TensorFlow 2.21 says of its ClusterSpec and Server.
ANSWERS = {
    "sorted(cluster.jobs)": ["ps", "worker"],
    "cluster.num_tasks('worker')": 2,
    "cluster.task_indices('worker')": [0, 1],
    "len(cluster.job_tasks('ps'))": 1,
    "cluster.task_address('worker', task_index) == cluster.as_dict()['worker'][task_index]": True,
    "server.target == 'grpc://' + cluster.task_address('worker', task_index)": True,
    "bool(cluster)": True,
    "cluster == type(cluster)(cluster.as_dict())": True,
    "cluster == type(cluster)({'worker': ['a:1']})": False,
    "refusal(lambda: cluster.job_tasks('nobody'))": "ValueError",
    "refusal(lambda: cluster.task_address('worker', 2))": "ValueError",
}
ASK = f"""
import json

def refusal(call):
    try:
        return call()
    except ValueError:
        return "ValueError"

def run(cluster, server, task_index):
    server.start()
    for question in {list(ANSWERS)!r}:
        print("ANSWER", json.dumps([question, eval(question, {{**globals(), **locals()}})]))
"""


def answers(lines: str) -> list[Any]:
    return [json.loads(line.partition("ANSWER ")[2]) for line in lines.splitlines() if "ANSWER " in line]


def run_with_tensorflow(code: str, folder: Path, **variables: str) -> str:
    """What a session says whose Python has TensorFlow."""
    assert TENSORFLOW is not None
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{folder}", "TF_CPP_MIN_LOG_LEVEL": "2", **variables}
    done = subprocess.run(
        [TENSORFLOW, "-c", f"from gyre import workers\n{code}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_our_objects_answer_as_tensorflows_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ask.py").write_text(ASK)
    workers.run_cluster(2, 1, 1, 0.5, worker_script="ask", tensorflow=False, timeout_seconds=LONG)
    expected = [[question, answer] for question, answer in ANSWERS.items()]
    assert sorted(answers(capfd.readouterr().out)) == sorted(expected * 2)
    if TENSORFLOW:
        call = f"workers.run_cluster(2, 1, 1, 4, worker_script='ask', timeout_seconds={LONG})"
        assert sorted(answers(run_with_tensorflow(call, tmp_path))) == sorted(expected * 2)


def write_mnist(folder: Path) -> None:
    """Real digits in MNIST's form: 8x8 pixels, each shown as 3x3 with a margin."""
    digits = cifar10.digits()
    for part, images, labels in (
        ("train", digits.train_images, digits.train_labels),
        ("t10k", digits.test_images, digits.test_labels),
    ):
        grey = np.asarray(images).reshape(-1, 3, 32, 32)[:, 0, ::4, ::4]
        pixels = np.pad(np.kron(grey, np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
        head = bytes([0, 0, 8, 3]) + np.array(pixels.shape, ">i4").tobytes()
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + pixels.tobytes()))
        head = bytes([0, 0, 8, 1]) + np.array([len(labels)], ">i4").tobytes()
        content = head + np.asarray(labels, np.uint8).tobytes()
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))


if TENSORFLOW:

    def test_the_articles_training_runs_on_tensorflow(tmp_path: Path, session: str) -> None:
        """Supervisor, prepare_or_wait_for_session, MNIST's files and Adam, with two workers and two servers."""
        write_mnist(tmp_path)
        (tmp_path / "train.py").write_text((SUPPORT / "article_train.py").read_text())
        call = f"print(workers.run_cluster(2, 2, 1, 4, worker_script='train', timeout_seconds={LONG}))"
        settings = {"MNIST": str(tmp_path), "LOG_DIR": str(tmp_path / "logs"), "EPOCHS": "6", "LEARNING_RATE": "0.01"}
        said = run_with_tensorflow(call, tmp_path, **settings)
        assert said.splitlines()[-1] == "(None, None)"
        found = re.findall(r"^\[worker (\d)\] worker \1: (\d+) steps of (\d+), accuracy (\S+)$", said, re.MULTILINE)
        assert sorted(index for index, *_ in found) == ["0", "1"]
        # The parameters are shared: the global step counts those of both workers.
        assert max(int(total) for *_, total, _ in found) > max(int(steps) for _, steps, *_ in found)
        assert min(float(accuracy) for *_, accuracy in found) > 0.8
        assert list((tmp_path / "logs").glob("model.ckpt*"))
        assert processes_with(session) == []
