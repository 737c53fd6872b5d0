"""Whole programs for Horovod's Keras interface run unchanged under `gyre run --horovod-compat`: one of the shape of
MLPerf HPC's CosmoFlow (files on a path, its own ranks and barriers, schedules, checkpoints), and one of the shape of
Horovod's MNIST examples."""

import csv
import os
import sys
from pathlib import Path

import numpy
import pytest

from gyre.data import write_tfrecords

PACKAGE = Path(__file__).parents[2] / "python"

COSMOFLOW = """
import argparse, glob, logging, math, os
from functools import partial
from time import time
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
tf.compat.v1.logging.set_verbosity(logging.ERROR)
import horovod.tensorflow.keras as hvd
import tensorflow.keras.layers as layers
from tensorflow import keras
import absl.logging
logging.root.removeHandler(absl.logging._absl_handler)
absl.logging._warn_preinit_stderr = False


def own_rank():
    try:
        return hvd.rank()
    except ValueError:  # Not distributed.
        return 0


def barrier():
    try:
        hvd.allreduce([], name='Barrier')
    except ValueError:
        pass


class StopAtTarget(tf.keras.callbacks.Callback):
    def __init__(self, metric='val_mean_absolute_error', target_max=None):
        self.metric, self.target_max = metric, target_max

    def on_epoch_end(self, epoch, logs={}):
        if self.target_max is not None and logs[self.metric] <= self.target_max:
            self.model.stop_training = True


class Timing(tf.keras.callbacks.Callback):
    def __init__(self):
        self.times = []

    def on_epoch_begin(self, epoch, logs={}):
        self.starttime = time()

    def on_epoch_end(self, epoch, logs={}):
        self.times.append(time() - self.starttime)
        logs['time'] = self.times[-1]


def parse(sample, shape):
    spec = dict(x=tf.io.FixedLenFeature([], tf.string), y=tf.io.FixedLenFeature([4], tf.float32))
    parsed = tf.io.parse_single_example(sample, features=spec)
    x = tf.cast(tf.reshape(tf.io.decode_raw(parsed['x'], tf.int16), shape), tf.float32)
    return tf.math.log(x + tf.constant(1.)), parsed['y']


def dataset(folder, n_samples, batch_size, n_epochs, shape, shard, n_shards, shuffle):
    names = sorted(glob.glob(os.path.join(folder, '*.tfrecord')))[:n_samples]
    data = tf.data.Dataset.from_tensor_slices(names)
    if shuffle:
        data = data.shuffle(len(names), reshuffle_each_iteration=True)
    data = data.shard(num_shards=n_shards, index=shard)
    data = data.apply(partial(tf.data.TFRecordDataset, compression_type=None))
    data = data.map(partial(parse, shape=shape), num_parallel_calls=tf.data.AUTOTUNE)
    data = data.repeat(n_epochs).batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    return data, n_samples // (n_shards * batch_size)


def lr_schedule(epoch, base_lr, peak_lr, n_warmup_epochs, decay_schedule={}):
    if epoch < n_warmup_epochs:
        return epoch * (peak_lr - base_lr) / n_warmup_epochs + base_lr
    return peak_lr * ([1.] + [d for e, d in decay_schedule.items() if e < epoch])[-1]


def scale_1p2(x):
    return x * 1.2


def build(shape):
    model = tf.keras.models.Sequential()
    model.add(layers.Conv3D(2, input_shape=shape, kernel_size=2, padding='same'))
    model.add(layers.LeakyReLU())
    model.add(layers.MaxPool3D(pool_size=2))
    model.add(layers.Flatten())
    model.add(layers.Dense(8))
    model.add(layers.Dropout(0.2))
    model.add(layers.Dense(4, activation='tanh'))
    model.add(layers.Lambda(scale_1p2))
    return model


def load_hvd_model(checkpoint):
    def wrap_optimizer(cls):
        return lambda **kwargs: hvd.DistributedOptimizer(cls(**kwargs))
    horovod_objects = {
        subclass.__name__.lower(): wrap_optimizer(subclass)
        for subclass in tf.keras.optimizers.Optimizer.__subclasses__()
    }
    return tf.keras.models.load_model(checkpoint, custom_objects=horovod_objects)


parser = argparse.ArgumentParser('train.py')
parser.add_argument('-d', '--distributed', action='store_true')
parser.add_argument('--resume', action='store_true')
parser.add_argument('--n-epochs', type=int, default=2)
args = parser.parse_args()
if args.distributed:
    hvd.init()
    dist = SimpleNamespace(rank=hvd.rank(), size=hvd.size(), local_rank=hvd.local_rank(), local_size=hvd.local_size())
else:
    dist = SimpleNamespace(rank=0, size=1, local_rank=0, local_size=1)
assert own_rank() == dist.rank
tf.config.threading.set_intra_op_parallelism_threads(2)
tf.config.threading.set_inter_op_parallelism_threads(2)
barrier()
shape, batch = (8, 8, 8, 2), 2
barrier()
common = dict(batch_size=batch, n_epochs=args.n_epochs, shape=shape, shard=dist.rank, n_shards=dist.size)
train_dataset, train_steps = dataset('data/train', 16, shuffle=True, **common)
valid_dataset, valid_steps = dataset('data/validation', 8, shuffle=False, **common)

checkpoint_format = os.path.join('out', 'checkpoint-{epoch:03d}.h5')
initial_epoch = 0
if args.resume and os.path.exists(checkpoint_format.format(epoch=1)):
    initial_epoch = max(e for e in range(1, 10) if os.path.exists(checkpoint_format.format(epoch=e)))
    load = load_hvd_model if args.distributed else tf.keras.models.load_model
    model = load(checkpoint_format.format(epoch=initial_epoch))
else:
    model = build(shape)
    opt = getattr(keras.optimizers, 'SGD')(learning_rate=0.001, momentum=0.9)
    if args.distributed:
        opt = hvd.DistributedOptimizer(opt)
    model.compile(optimizer=opt, loss='mse', metrics=['mean_absolute_error'])
if dist.rank == 0:
    model.summary()

callbacks = []
if args.distributed:
    callbacks.append(hvd.callbacks.BroadcastGlobalVariablesCallback(0))
    callbacks.append(hvd.callbacks.MetricAverageCallback())
schedule = partial(lr_schedule, base_lr=0.001, peak_lr=0.001 * dist.size, n_warmup_epochs=1, decay_schedule={2: 0.25})
callbacks.append(tf.keras.callbacks.LearningRateScheduler(schedule))
callbacks.append(Timing())
if dist.rank == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(checkpoint_format))
    callbacks.append(tf.keras.callbacks.CSVLogger(os.path.join('out', 'history.csv'), append=args.resume))
callbacks.append(tf.keras.callbacks.EarlyStopping(monitor='val_loss', min_delta=1e-5, patience=5, verbose=1))
callbacks.append(StopAtTarget(target_max=1e-9))
model.fit(train_dataset, steps_per_epoch=train_steps, epochs=args.n_epochs, validation_data=valid_dataset,
          validation_steps=valid_steps, callbacks=callbacks, initial_epoch=initial_epoch, verbose=2)
if args.distributed:
    weights = np.concatenate([w.ravel() for w in model.get_weights() if w.dtype == np.float32])
    rows = hvd.allgather(weights[None])
    print('rank', dist.rank, 'agrees:', all((row == rows[0]).all() for row in rows),
          'after', int(model.optimizer.iterations.numpy()), 'steps', flush=True)
if dist.rank == 0:
    print('All done!', flush=True)
"""

MNIST = """
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd

hvd.init()
gpus = tf.config.experimental.list_physical_devices('GPU')
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')

with np.load('mnist.npz') as file:
    mnist_images, mnist_labels = file['x_train'], file['y_train']
dataset = tf.data.Dataset.from_tensor_slices(
    (tf.cast(mnist_images[..., tf.newaxis] / 255.0, tf.float32), tf.cast(mnist_labels, tf.int64))
)
dataset = dataset.repeat().shuffle(1000).batch(20)
mnist_model = tf.keras.Sequential([
    tf.keras.layers.Conv2D(8, [3, 3], activation='relu'),
    tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
    tf.keras.layers.Dropout(0.25),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(10, activation='softmax'),
])
scaled_lr = 0.0005 * hvd.size()
opt = tf.optimizers.Adam(scaled_lr)
opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, average_aggregated_gradients=True)
mnist_model.compile(loss=tf.losses.SparseCategoricalCrossentropy(), optimizer=opt, metrics=['accuracy'])
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=2, verbose=1),
    hvd.callbacks.LearningRateScheduleCallback(initial_lr=scaled_lr, multiplier=0.1, start_epoch=3),
]
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint('./checkpoint-{epoch}.h5'))
verbose = 1 if hvd.rank() == 0 else 0
history = mnist_model.fit(dataset, steps_per_epoch=60 // hvd.size(), callbacks=callbacks, epochs=4, verbose=verbose)
weights = np.concatenate([w.ravel() for w in mnist_model.get_weights() if w.dtype == np.float32])
rows = hvd.allgather(weights[None])
print('rank', hvd.rank(), 'agrees:', all((row == rows[0]).all() for row in rows),
      'learns:', history.history['loss'][-1] < history.history['loss'][0], flush=True)
"""


def environment() -> dict[str, str]:
    return {"PYTHONPATH": str(PACKAGE), "TF_CPP_MIN_LOG_LEVEL": "2", "PATH": os.environ["PATH"]}


def write_universes(folder: Path, count: int) -> None:
    """Samples in CosmoFlow's format, one per file, whose targets follow from their densities."""
    folder.mkdir(parents=True)
    random = numpy.random.default_rng(len(folder.name))
    for number in range(count):
        mean = random.uniform(1, 50)
        counts = random.poisson(mean, (8, 8, 8, 2)).astype("<i2")
        target = numpy.array([mean / 50, 0.5, -0.5, mean / 100], numpy.float32)
        write_tfrecords(folder / f"univ_{number:03d}.tfrecord", [{"x": counts.tobytes(), "y": target}])


def test_a_program_of_cosmoflows_shape_trains_and_resumes(start_job, tmp_path):
    write_universes(tmp_path / "data" / "train", 16)
    write_universes(tmp_path / "data" / "validation", 8)
    (tmp_path / "out").mkdir()
    (tmp_path / "train.py").write_text(COSMOFLOW)

    def train(*arguments: str, option: str = "--horovod-compat", ranks: int = 2):
        command = [option, "-n", str(ranks), "--", sys.executable, "train.py", *arguments]
        job = start_job(*command, env=environment(), timeout=240)
        assert job.wait() == 0, job.stderr
        assert "All done!" in job.stdout
        return job.stdout

    said = train("--distributed")
    for rank in range(2):
        assert f"rank {rank} agrees: True after 8 steps" in said
    # Keras 3 itself does not read what it has written: a loss by its short name, a Lambda layer, and an optimizer that
    # the program wraps by a function.
    said = train("--distributed", "--resume", "--n-epochs", "3", option="--keras-2018")
    for rank in range(2):
        assert f"rank {rank} agrees: True after 12 steps" in said
    with (tmp_path / "out" / "history.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert [float(row["learning_rate"]) for row in rows] == pytest.approx([0.001, 0.002, 0.002])
    # Without init(), as the program runs on one process.
    train("--n-epochs", "1", ranks=1)


def test_a_program_of_the_mnist_examples_shape_trains(start_job, tmp_path):
    random = numpy.random.default_rng(1)
    labels = random.integers(0, 10, 400)
    images = random.integers(0, 100, (400, 28, 28))
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 8, 4:24] += 150
    numpy.savez(tmp_path / "mnist.npz", x_train=images.astype(numpy.uint8), y_train=labels)
    (tmp_path / "train.py").write_text(MNIST)
    job = start_job("--horovod-compat", "-n", "2", "--", sys.executable, "train.py", env=environment(), timeout=240)
    assert job.wait() == 0, job.stderr
    for rank in range(2):
        assert f"rank {rank} agrees: True learns: True" in job.stdout
    assert "finished gradual learning rate warmup" in job.stdout
    assert (tmp_path / "checkpoint-4.h5").exists()
