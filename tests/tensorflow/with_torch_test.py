"""A program may use TensorFlow and torch in one process, whichever it imports first, and start other processes by fork
and by spawn. torch is that of .venv: this folder's Python has none."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TORCH = ROOT / ".venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

SCRIPT = """
import multiprocessing
import sys

sys.path.append(sys.argv[2])  # Behind this Python's own packages.
if sys.argv[1] == "torch":
    import gyre.torch
    import gyre.tensorflow
else:
    import gyre.tensorflow
    import gyre.torch
import gyre.keras
import keras
import numpy
import tensorflow as tf
import torch


def child(numbers):
    # What workers that read data do. TensorFlow itself does not compute in a fork.
    numbers.put(float(torch.from_numpy(numpy.arange(4.0)).sum()))


def main():
    gyre.keras.init()
    rank, size = gyre.keras.rank(), gyre.keras.size()
    assert gyre.torch.rank() == gyre.tensorflow.rank() == rank
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    model.compile(gyre.keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    layer = torch.nn.Linear(8, 3)
    gyre.torch.broadcast_parameters(layer.state_dict(), 0)
    optimizer = gyre.torch.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1))
    random = numpy.random.default_rng(rank)
    for step in range(3):
        inputs, targets = random.standard_normal((4, 8)), random.standard_normal((4, 3))
        model.fit(inputs, targets, verbose=0, callbacks=[gyre.keras.callbacks.BroadcastGlobalVariablesCallback(0)])
        optimizer.zero_grad()
        (layer(torch.from_numpy(inputs).float()) - torch.from_numpy(targets)).square().mean().backward()
        optimizer.step()
        both = tf.function(lambda x: gyre.tensorflow.allreduce(x, op=gyre.tensorflow.Sum))(tf.ones(2))
        assert both.numpy().tolist() == gyre.torch.allreduce(torch.ones(2), op=gyre.torch.Sum).tolist() == [size] * 2
        if step == 0:
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                numbers = context.Queue()
                process = context.Process(target=child, args=(numbers,))
                process.start()
                assert numbers.get(timeout=100) == 6.0
                process.join(100)
                assert process.exitcode == 0, method
    weights = [w.ravel() for w in (*model.get_weights(), *(p.detach().numpy() for p in layer.parameters()))]
    rows = gyre.keras.allgather(numpy.concatenate(weights)[None])
    print("rank", rank, "agrees", all(row.tobytes() == rows[0].tobytes() for row in rows), flush=True)


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("first", ["torch", "tensorflow"])
def test_both_frameworks_train_in_one_process(start_job, tmp_path, first: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {"PYTHONPATH": str(ROOT / "python"), "TF_CPP_MIN_LOG_LEVEL": "2", "PATH": os.environ["PATH"]}
    job = start_job("-n", "2", "--", sys.executable, "train.py", first, str(TORCH), env=environment, timeout=240)
    assert job.wait() == 0, job.stderr
    assert sorted(line.split("] ")[1] for line in job.stdout.splitlines() if "agrees" in line) == [
        "rank 0 agrees True",
        "rank 1 agrees True",
    ]
