"""Scripts for Horovod 0.28, which were written for Keras 2, run unchanged with Keras 3 under `gyre run
--horovod-compat`: each name that is gone works as it did, and is named once."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

PACKAGE = Path(__file__).parents[2] / "python"

SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras.optimizers.legacy import Adam as FormerAdam
import horovod
import horovod.tensorflow as operations
import horovod.tensorflow.keras as hvd

hvd.init()
assert not hvd.sycl_built() and not operations.sycl_built()
assert 'gyre.keras_2018' not in sys.modules
x = np.random.RandomState(hvd.rank()).rand(48, 3).astype('float32')
y = x[:, :2] * 2


def small(optimizer, **options):
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)])
    model.compile(loss='mse', optimizer=optimizer, metrics=['accuracy'], experimental_run_tf_function=False, **options)
    return model


class Six(tf.keras.utils.Sequence):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return x[8 * index:8 * index + 8], y[8 * index:8 * index + 8]


# The legacy optimizers, their arguments, and what callbacks read and assign.
opt = tf.keras.optimizers.legacy.SGD(lr=0.5, decay=0.25, momentum=0.5)
opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, average_aggregated_gradients=True)
model = small(opt)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.02, warmup_epochs=2),
]
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, workers=2, use_multiprocessing=False, callbacks=callbacks)
assert set(history.history) == {'accuracy', 'loss', 'lr'}, history.history
assert opt.decay == 0.25 and abs(float(tf.keras.backend.get_value(opt.lr)) - 0.02) < 1e-6
tf.keras.backend.set_value(model.optimizer.lr, 0.25)
model.optimizer.lr.assign(model.optimizer.lr * 0.5)
assert float(opt.learning_rate.numpy()) == 0.125
model.fit_generator(Six(), steps_per_epoch=4, epochs=3, verbose=0, callbacks=callbacks[:2])
assert int(opt.iterations.numpy()) == 24
assert len(model.evaluate_generator(Six(), steps=8)) == 2 and model.predict_generator(Six(), steps=8).shape == (64, 2)
rows = hvd.allgather(np.concatenate([w.ravel() for w in model.get_weights()])[None])
assert (rows[0] == rows[1]).all()

# Each class of then, with the defaults of then.
legacy = tf.keras.optimizers.legacy
for name, rate in dict(SGD=0.01, RMSprop=0.001, Adagrad=0.001, Adadelta=0.001, Adamax=0.001, Nadam=0.001).items():
    made = getattr(legacy, name)()
    assert isinstance(made, legacy.Optimizer) and abs(float(made.lr.numpy()) - rate) < 1e-9, name
assert isinstance(FormerAdam(1e-2, 0.8), keras.optimizers.Adam) and keras.optimizers.legacy.Ftrl().lr is not None
assert keras.optimizers.RMSprop(0.1, 0.8, 0.7).momentum == 0.7  # The order of then and now,
assert keras.optimizers.SGD(0.1, 0.5, False, 0.25).weight_decay == 0.25  # with what has been added since.
try:
    keras.optimizers.SGD(0.1, learning_rate=0.2)
except TypeError as error:
    assert 'SGD() got learning_rate by position and by name' in str(error)
else:
    raise AssertionError('no error')

# A training loop that sends the optimizer's variables.
model, adam = small('sgd'), tf.optimizers.Adam(0.01 * hvd.size())


@tf.function
def step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(labels - model(images, training=True)))
    tape = operations.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    adam.apply_gradients(zip(gradients, model.trainable_variables))
    if first_batch:
        operations.broadcast_variables(model.variables, root_rank=0)
        operations.broadcast_variables(adam.variables(), root_rank=0)


for batch in range(3):
    step(x[:8], y[:8], batch == 0)
rows = hvd.allgather(np.concatenate([w.ravel() for w in model.get_weights()])[None])
print('rank', hvd.rank(), 'agrees:', bool((rows[0] == rows[1]).all()), len(adam.variables()), flush=True)
"""


def test_scripts_for_horovod_find_what_keras_3_no_longer_has(start_job, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    variables = {"PYTHONPATH": str(PACKAGE), "TF_CPP_MIN_LOG_LEVEL": "2", "PATH": os.environ["PATH"]}
    job = start_job("--horovod-compat", "-n", "2", "--", sys.executable, "train.py", env=variables, timeout=240)
    assert job.wait() == 0, job.stderr
    for rank in range(2):
        assert f"rank {rank} agrees: True 6" in job.stdout
    reports = [
        line.partition("--horovod-compat: ")[2] for line in job.stderr.splitlines() if "--horovod-compat: " in line
    ]
    assert len(reports) == len(set(reports))
    for wanted in (
        "compile(experimental_run_tf_function=): has no effect",
        "keras.optimizers.legacy.SGD: keras.optimizers.SGD",
        "optimizers' lr=: learning_rate=",
        "optimizers' decay=: ",
        "optimizer.lr: optimizer.learning_rate",
        "optimizer.variables(): ",
        "workers=: has no effect",
        "fit_generator(): fit()",
        "evaluate_generator(): ",
        "predict_generator(): ",
    ):
        assert any(line.startswith(wanted) for line in reports), (wanted, reports)


def test_without_the_option_nothing_is_substituted():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(TypeError, match="experimental_run_tf_function"):
        model.compile(loss="mse", experimental_run_tf_function=False)


@pytest.mark.parametrize("shims", ["_horovod_shim", "_horovod_shim _keras_2018_shim", "_keras_2018_shim _horovod_shim"])
def test_another_sitecustomize_runs_once_and_one_set_of_names_waits(tmp_path, shims):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.runs = getattr(builtins, 'runs', 0) + 1\n")
    folders = [*(PACKAGE / "gyre" / shim for shim in shims.split()), tmp_path, PACKAGE]
    script = "import sys\nwaiting = [f for f in sys.meta_path if type(f).__name__ == '_FirstImport']\n"
    finished = subprocess.run(
        [sys.executable, "-c", f"{script}print(runs, len(waiting), 'gyre' in sys.modules)"],
        env={"PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.stdout.split() == ["1", "1", "False"], finished
