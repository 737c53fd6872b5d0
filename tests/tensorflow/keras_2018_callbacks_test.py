"""`gyre.keras_2018.install()` gives a script what `gyre run --keras-2018` gives it, and Horovod's callbacks take the
arguments that they had in 2018."""

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python"

SCRIPT = """
import gyre.keras_2018
gyre.keras_2018.install()
import keras
import numpy as np
import horovod.keras as hvd

hvd.init()
x = np.random.RandomState(hvd.rank()).rand(16, 3).astype('float32')
warmup, schedule = hvd.callbacks.LearningRateWarmupCallback, hvd.callbacks.LearningRateScheduleCallback


class Rates(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.rates = []

    def on_batch_begin(self, batch, logs=None):
        self.rates.append(float(keras.backend.get_value(self.model.optimizer.lr)))


def rates(epochs, *callbacks):
    model = keras.models.Sequential([keras.layers.Dense(2, input_dim=3)])
    model.compile(loss='mse', optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(lr=0.01 * 2, momentum=0.9)))
    seen = Rates()
    model.fit(x, x[:, :2], batch_size=8, epochs=epochs, verbose=0,
              callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), *callbacks, seen])
    return seen.rates


def check(found, *wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


rising = [0.02 / 2 * ((batch / 2 + 1 / 2) * (2 - 1) / 2 + 1) for batch in range(4)]
check(rates(3, warmup(warmup_epochs=2, verbose=1)), *rising, 0.02, 0.02)
check(rates(3, warmup(2)), *rising, 0.02, 0.02)
check(rates(2, warmup(2, True, 2, 0)), *rising)
# A number is the factor of each epoch; a function gets the epoch.
check(rates(4, schedule(start_epoch=1, end_epoch=3, multiplier=0.5), schedule(0.1, 3)), *[0.02] * 2, *[0.01] * 4,
      *[0.002] * 2)
check(rates(2, schedule(lambda epoch: 1 + epoch, 0, None, False, True, 2)), 0.02, 0.03, 0.04, 0.05)
# Today's arguments are still today's.
check(rates(1, warmup(0.04, warmup_epochs=1)), 0.03, 0.04)
check(rates(3, schedule(0.04, multiplier=0.5)), *[0.04] * 2, *[0.02] * 2, *[0.01] * 2)
check(rates(1, schedule(0.04, lambda epoch: 0.5)), 0.02, 0.02)
check(rates(2, schedule(multiplier=0.5, initial_lr=0.04)), 0.04, 0.04, 0.02, 0.02)
try:
    warmup(1, True, 2, 0, 5)
except TypeError as error:
    assert 'LearningRateWarmupCallback() took 4 positional arguments in 2018: warmup_epochs' in str(error)
else:
    raise AssertionError('no error')
print('rank', hvd.rank(), 'of', hvd.size(), 'followed', flush=True)
"""


def test_horovods_callbacks_of_then_take_the_rate_of_the_optimizer(start_job, tmp_path) -> None:
    (tmp_path / "rates.py").write_text(SCRIPT)
    variables = {"PYTHONPATH": str(PACKAGE), "TF_CPP_MIN_LOG_LEVEL": "2", "PATH": os.environ["PATH"]}
    job = start_job("-n", "2", "--", sys.executable, "rates.py", env=variables, timeout=240)
    assert job.wait() == 0, job.stderr
    for rank in range(2):
        assert f"rank {rank} of 2 followed" in job.stdout
    assert "Epoch 2: finished gradual learning rate warmup to 0.02." in job.stdout
    for kind in ("Warmup", "Schedule"):
        report = f"gyre: --keras-2018: LearningRate{kind}Callback() without initial_lr=: the initial rate is the"
        assert job.stderr.count(report) == 1, job.stderr
