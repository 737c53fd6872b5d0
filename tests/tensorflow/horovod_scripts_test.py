"""Scripts for Horovod's Keras and TensorFlow interfaces run unchanged under `gyre run --horovod-compat`."""

import os
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python"

# Article 000's script, as far as it is about Horovod; what Keras 3 no longer has is written as Keras 3 has it.
KERAS_SCRIPT = """
import {module} as hvd
import keras
import numpy as np

hvd.init()
rank, size = hvd.rank(), hvd.size()
batch_size, epochs = 8, 4
random = np.random.default_rng(rank)
x_train = random.standard_normal((64, 8, 8, 3)).astype("float32")
y_train = keras.utils.to_categorical(x_train.mean((1, 2, 3)) > 0, 2)

model = keras.Sequential()
model.add(keras.layers.Conv2D(4, (3, 3), padding="same", activation="relu", input_shape=x_train.shape[1:]))
model.add(keras.layers.MaxPooling2D(pool_size=(2, 2)))
model.add(keras.layers.Dropout(0.25))
model.add(keras.layers.Flatten())
model.add(keras.layers.Dense(2, activation="softmax"))

opt = keras.optimizers.RMSprop(learning_rate=0.001 * hvd.size())
opt = hvd.DistributedOptimizer(opt)
model.compile(loss="categorical_crossentropy", optimizer=opt, metrics=["accuracy"])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(0.001 * hvd.size(), warmup_epochs=2, verbose=1),
    keras.callbacks.ReduceLROnPlateau(patience=10, verbose=1),
]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint("checkpoint-{{epoch}}.keras"))

model.fit(
    x_train,
    y_train,
    batch_size=batch_size,
    callbacks=callbacks,
    epochs=epochs,
    verbose=0,
    validation_data=(x_train, y_train),
)
score = hvd.allreduce(model.evaluate(x_train, y_train, verbose=0)[0])
weights = np.concatenate([w.ravel() for w in model.get_weights()[:4]])
rows = hvd.allgather(weights[None])
print("rank", rank, "of", size, "agrees:", all((row == rows[0]).all() for row in rows), flush=True)
"""


def environment() -> dict[str, str]:
    return {"PYTHONPATH": str(PACKAGE), "TF_CPP_MIN_LOG_LEVEL": "2", "PATH": os.environ["PATH"]}


@pytest.mark.parametrize("module", ["horovod.keras", "horovod.tensorflow.keras"])
def test_a_keras_script_runs_unchanged(start_job, tmp_path, module):
    (tmp_path / "train.py").write_text(KERAS_SCRIPT.format(module=module))
    job = start_job("--horovod-compat", "-n", "2", "--", sys.executable, "train.py", env=environment(), timeout=240)
    assert job.wait() == 0, job.stderr
    for rank in range(2):
        assert f"rank {rank} of 2 agrees: True" in job.stdout
    assert (tmp_path / "checkpoint-4.keras").exists()


TAPE_SCRIPT = """
import horovod.tensorflow as hvd
import keras
import tensorflow as tf

hvd.init()
keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
opt = keras.optimizers.Adam(0.001 * hvd.size())


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        loss_value = loss_of(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables, root_rank=0)
    return loss_value


for batch in range(10):
    images = tf.random.normal((8, 4))
    loss_value = training_step(images, tf.cast(images[:, 0] > 0, tf.int32), batch == 0)
rows = hvd.allgather(tf.concat([tf.reshape(v, [1, -1]) for v in model.trainable_variables], 1))
print("rank", hvd.rank(), "agrees:", bool(tf.reduce_all(rows == rows[:1])), "in", rows.shape[0], "rows", flush=True)
"""


def test_a_tensorflow_script_runs_unchanged(start_job, tmp_path):
    (tmp_path / "train.py").write_text(TAPE_SCRIPT)
    job = start_job("--horovod-compat", "-n", "2", "--", sys.executable, "train.py", env=environment(), timeout=240)
    assert job.wait() == 0, job.stderr
    for rank in range(2):
        assert f"rank {rank} agrees: True in 2 rows" in job.stdout


ABSENT = """
import importlib
import horovod.keras
from horovod.tensorflow import compression, keras
assert keras is horovod.keras and keras.Compression is compression.Compression
import horovod.tensorflow
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization
assert SyncBatchNormalization is horovod.tensorflow.SyncBatchNormalization
tensorflow = horovod.tensorflow
for module, name in ((tensorflow, "elastic"), (keras, "elastic"), (tensorflow, "data"), (keras, "nothing")):
    try:
        getattr(module, name)
    except AttributeError as error:
        print(module.__name__, name, "|", error, flush=True)
try:
    from horovod.keras import elastic
except ImportError as error:
    print("from horovod.keras |", error, flush=True)
for name in (
    "horovod.tensorflow.keras.elastic",
    "horovod.tensorflow.data.compute_service",
    "horovod.tensorflow.gradient_aggregation",
    "horovod._keras",
    "horovod.spark",
    "horovod.torch",
):
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(name, "|", error, flush=True)
"""


def test_modules_that_do_not_exist_say_what_to_use(start_job, tmp_path):
    (tmp_path / "absent.py").write_text(ABSENT)
    job = start_job("--horovod-compat", "--", sys.executable, "absent.py", env=environment(), timeout=240)
    assert job.wait() == 0, job.stderr
    assert "horovod.tensorflow.keras.elastic | horovod.tensorflow.keras.elastic does not exist under Gyre" in job.stdout
    assert "horovod.tensorflow.data.compute_service | horovod.tensorflow.data does not exist under Gyre" in job.stdout
    assert "| horovod.tensorflow.gradient_aggregation does not exist under Gyre: gradients of several" in job.stdout
    assert "horovod._keras | horovod._keras does not exist under Gyre" in job.stdout
    assert "gyre.tensorflow elastic | module 'gyre.tensorflow' has no attribute 'elastic': Gyre has no" in job.stdout
    assert "gyre.keras elastic | module 'gyre.keras' has no attribute 'elastic': Gyre has no elastic" in job.stdout
    assert "gyre.tensorflow data | module 'gyre.tensorflow' has no attribute 'data': there are no" in job.stdout
    assert "gyre.keras nothing | module 'gyre.keras' has no attribute 'nothing'\n" in job.stdout
    assert "from horovod.keras | Gyre has no elastic training" in job.stdout
    assert "horovod.spark | horovod.spark does not exist under Gyre" in job.stdout
    assert "horovod.torch | No module named 'torch'" in job.stdout
