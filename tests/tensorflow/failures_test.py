"""What ends fit() on one rank ends the job with one message, and no rank hangs."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from running_job import wait_until

PACKAGE = Path(__file__).parents[2] / "python"
# Ranks that import TensorFlow, on a machine that has other things to do.
PATIENCE_SECONDS = 240.0

SCRIPT = """
import os
import signal
import sys

import gyre.keras as hvd
import keras
import numpy

hvd.init()
if sys.argv[1] == "deaf" and hvd.rank() == 0:
    signal.signal(signal.SIGINT, lambda *_: None)


class Trouble(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2 and hvd.rank() == 1:
            if sys.argv[1] == "raise":
                raise KeyError("no such sample")
            if sys.argv[1] == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            print("in the middle of an epoch", flush=True)


class Endless(keras.utils.PyDataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        return numpy.ones((4, 8), "float32"), numpy.ones((4, 3), "float32")


model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
model.fit(Endless(), verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), Trouble()])
"""


def start(start_job, tmp_path: Path, trouble: str):
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {"PYTHONPATH": str(PACKAGE), "TF_CPP_MIN_LOG_LEVEL": "2", "PATH": os.environ["PATH"]}
    return start_job("-n", "2", "--", sys.executable, "train.py", trouble, env=environment, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("trouble", "says"),
    [("raise", "exit code 1\n(.*\n)*.*KeyError: 'no such sample'"), ("die", "SIGKILL|signal 9")],
)
def test_the_rank_that_failed_is_named_once(start_job, tmp_path, trouble, says) -> None:
    job = start(start_job, tmp_path, trouble)
    assert job.wait() not in (0, None)
    reports = [part for part in job.stderr.split("gyre run: ") if part.startswith("rank 1 of 2 failed first")]
    assert len(reports) == 1, job.stderr
    assert re.search(says, reports[0]), job.stderr
    # The other rank's traceback is not shown beside it.
    assert "[0] Traceback" not in job.stderr


def test_ctrl_c_ends_all_ranks_without_a_cascade(start_job, tmp_path) -> None:
    job = start(start_job, tmp_path, "nothing")
    wait_until("the ranks train", lambda: "in the middle of an epoch" in job.stdout, PATIENCE_SECONDS)
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130, job.stderr
    assert "Traceback" not in job.stderr, job.stderr


def test_a_rank_that_ctrl_c_has_not_reached_ends_with_the_others(start_job, tmp_path) -> None:
    """Keras makes NumPy's arrays of a batch's logs, and NumPy may drop the KeyboardInterrupt that comes meanwhile."""
    job = start(start_job, tmp_path, "deaf")
    wait_until("the ranks train", lambda: "in the middle of an epoch" in job.stdout, PATIENCE_SECONDS)
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130, job.stderr
    assert "Traceback" not in job.stderr, job.stderr
    assert re.search(r"\[0\] train.py:\d+: gyre.errors.AbortedError: rank 1 .*folded", job.stderr), job.stderr
