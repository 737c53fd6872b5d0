"""`gyre run --keras-2018`: scripts for Keras 2.0 to 2.2 and TensorFlow 1 train unchanged, with the numbers of then, and
each substitution is named once."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

PACKAGE = Path(__file__).parents[2] / "python"
SHIM = PACKAGE / "gyre" / "_keras_2018_shim"

# The lines of article 000's script, in its order, on small images.
ARTICLE = """
from __future__ import print_function
import os
import numpy as np

import horovod.keras as hvd
import keras
from keras import backend as K
from keras.datasets import cifar10
from keras.layers import Dense, Dropout, Activation, Flatten
from keras.layers import Conv2D, MaxPooling2D
from keras.models import Sequential
from keras.preprocessing.image import ImageDataGenerator
import tensorflow as tf

hvd.init()
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())
K.set_session(tf.Session(config=config))

random = np.random.RandomState(hvd.rank())
x_train = random.randint(0, 255, (64, 12, 12, 3))
y_train = (x_train.mean((1, 2, 3)) > 127).astype(int)[:, None]
y_train = keras.utils.to_categorical(y_train, 2)

model = Sequential()
model.add(Conv2D(4, (3, 3), padding='same', input_shape=x_train.shape[1:]))
model.add(Activation('relu'))
model.add(MaxPooling2D(pool_size=(2, 2)))
model.add(Dropout(0.25))
model.add(Flatten())
model.add(Dense(2))
model.add(Activation('softmax'))
opt = keras.optimizers.rmsprop(lr=0.0001, decay=1e-6)
opt = hvd.DistributedOptimizer(opt)
model.compile(loss='categorical_crossentropy', optimizer=opt, metrics=['accuracy'])

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
x_train = x_train.astype('float32')
x_train /= 255
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint('logs/checkpoint-{epoch}-{val_acc:.2f}.h5'))
    callbacks.append(keras.callbacks.TensorBoard('logs'))
history = model.fit(x_train, y_train, batch_size=16, epochs=2, validation_data=(x_train, y_train), shuffle=True,
                    callbacks=callbacks, verbose=0)
assert sorted(history.history) == ['acc', 'loss', 'val_acc', 'val_loss'], sorted(history.history)

datagen = ImageDataGenerator(featurewise_center=False, horizontal_flip=True, vertical_flip=False)
datagen.fit(x_train)
model.fit_generator(datagen.flow(x_train, y_train, batch_size=16), epochs=1, validation_data=(x_train, y_train),
                    workers=4, callbacks=callbacks, verbose=0)
assert int(K.get_value(opt.iterations)) == 12
if hvd.rank() == 0:
    if not os.path.isdir('models'):
        os.makedirs('models')
    model.save('models/trained.h5')
    scores = model.evaluate(x_train, y_train, verbose=0)
    print('Test loss:', scores[0])
    print('Test accuracy:', scores[1])
    assert len(model.predict_classes(x_train)) == 64
weights = np.concatenate([w.ravel() for w in model.get_weights() if w.dtype == np.float32])
rows = hvd.allgather(weights[None])
print('rank', hvd.rank(), 'agrees:', all((row == rows[0]).all() for row in rows), flush=True)
"""


def environment(*folders: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in (*folders, PACKAGE)),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PATH": os.environ["PATH"],
    }


def test_the_articles_script_runs_unchanged(start_job, tmp_path) -> None:
    (tmp_path / "train.py").write_text(ARTICLE)
    (tmp_path / "logs").mkdir()
    job = start_job("--keras-2018", "-n", "2", "--", sys.executable, "train.py", env=environment(), timeout=240)
    assert job.wait() == 0, job.stderr
    for rank in range(2):
        assert f"rank {rank} agrees: True" in job.stdout
    assert "Test accuracy:" in job.stdout
    reports = [line.partition("--keras-2018: ")[2] for line in job.stderr.splitlines() if "--keras-2018: " in line]
    assert len(reports) == len(set(reports))
    for wanted in (
        "tf.ConfigProto: tf.compat.v1.ConfigProto",
        "K.set_session(): there are no sessions",
        "keras.optimizers.rmsprop: keras.optimizers.RMSprop",
        "optimizers' lr=: learning_rate=",
        "optimizers' decay=: ",
        "metrics=['accuracy']: called acc and val_acc",
        "fit_generator(): fit()",
        "keras.preprocessing.image.ImageDataGenerator: ",
        "workers=: has no effect",
    ):
        assert any(line.startswith(wanted) for line in reports), (wanted, reports)
    assert not any("rank 1" in line or line.startswith("[1] gyre: --keras") for line in job.stderr.splitlines())
    files = sorted(path.name for path in (tmp_path / "logs").glob("checkpoint-*.h5"))
    assert len(files) >= 2
    assert list((tmp_path / "logs").rglob("events.out.tfevents.*"))
    # Keras 3 itself reads the model, without the decay that it does not know.
    assert keras.models.load_model(tmp_path / "models" / "trained.h5").optimizer is not None


def run_alone(tmp_path: Path, script: str, *folders: Path) -> str:
    (tmp_path / "alone.py").write_text(script)
    finished = subprocess.run(
        [sys.executable, "alone.py"],
        cwd=tmp_path,
        env=environment(SHIM, *folders),
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout + finished.stderr


NUMBERS = """
import numpy as np
from tensorflow import keras
from tensorflow.keras import backend as K
import keras as other

# Decay: the rate of step t is lr / (1 + decay * t), while `lr` stays what callbacks may read and assign.
for traced in (True, False):
    model = keras.models.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer='zeros', input_dim=1)])
    opt = keras.optimizers.SGD(0.5, 0.0, 0.25)
    model.compile(opt, 'mse', ['mse'], run_eagerly=not traced)
    weight, x = 0.0, np.ones((4, 1), 'float32')
    for step in range(6):
        model.train_on_batch(x, x)
        weight -= 0.5 / (1 + 0.25 * step) * 2 * (weight - 1)
        np.testing.assert_allclose(model.get_weights()[0].item(), weight, rtol=1e-5)
        if step == 2:
            assert float(K.get_value(opt.lr)) == 0.5
    opt.lr = 0.125
    assert float(K.get_value(model.optimizer.lr)) == 0.125
    assert opt.get_config()['decay'] == 0.25

# Defaults and arguments of then.
rates = dict(sgd=0.01, adagrad=0.01, adadelta=1.0, Adamax=0.002, Nadam=0.002, adam=0.001, rmsprop=0.001)
for kind, rate in rates.items():
    made = getattr(other.optimizers, kind)()
    assert abs(float(K.get_value(made.lr)) - rate) < 1e-9, kind
assert keras.optimizers.Adam(epsilon=None).epsilon == 1e-7
assert keras.optimizers.RMSprop(0.1, 0.8, None, 1e-3).decay == 1e-3
assert keras.optimizers.SGD(lr=1).get_config()['learning_rate'] == 1.0
assert len(opt.variables()) == len(opt.variables) == 2

# Modules that are gone, by each way of importing them.
from keras.utils import np_utils
from keras.utils.np_utils import to_categorical
from keras.layers.core import Dense, Dropout
from keras.layers.convolutional import Conv2D
from keras.layers.normalization import BatchNormalization
from keras.engine.topology import Layer, Input
from keras.backend.tensorflow_backend import set_session
from tensorflow.keras.layers.recurrent import LSTM
import keras.preprocessing.text
assert other.utils.np_utils.to_categorical is to_categorical and Dense is keras.layers.Dense
assert K.image_dim_ordering() == 'tf' and other.backend.int_shape(np.zeros((2, 3))) == (2, 3)
try:
    keras.utils.no_such_name
except AttributeError as error:
    print('still an error:', error)

# Files: whatever their names, and with losses by their short names.
model = keras.models.Sequential([keras.layers.Dense(2, input_shape=(3,))])
model.compile(keras.optimizers.Adam(lr=0.01, decay=0.1), loss='mse', metrics=['mae'])
x, y = np.ones((8, 3)), np.ones((8, 2))
checkpoint = keras.callbacks.ModelCheckpoint('w.{epoch:02d}-{val_mean_absolute_error:.9f}.hdf5', period=2)
weights_only = keras.callbacks.ModelCheckpoint('only.h5', save_weights_only=True)
board = keras.callbacks.TensorBoard('board', 0, 32, True, False)
model.fit(x, y, nb_epoch=4, validation_data=(x, y), callbacks=[checkpoint, weights_only, board], verbose=0)
import glob
names = sorted(glob.glob('w.*.hdf5'))
assert [name[:4] for name in names] == ['w.02', 'w.04'], names
loaded = keras.models.load_model(names[-1])
assert int(K.get_value(loaded.optimizer.iterations)) == 4 and loaded.optimizer.decay == 0.1
for one in (model, loaded):
    one.fit(x, y, epochs=1, verbose=0, shuffle=False)
for a, b in zip(model.get_weights(), loaded.get_weights()):
    np.testing.assert_allclose(a, b, rtol=1e-6)
model.save_weights('weights.h5')
loaded.load_weights('only.h5')
loaded.load_weights('weights.h5')
np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])
import tensorflow as tf
try:
    tf.Session().run(1)
except RuntimeError as error:
    print('refused:', error)
tf.set_random_seed(1)
"""


def test_numbers_names_and_files_are_those_of_then(tmp_path) -> None:
    said = run_alone(tmp_path, NUMBERS)
    assert "still an error: module 'keras" in said
    assert "refused: Session.run(): TensorFlow 2 has no sessions" in said


def test_another_sitecustomize_and_scripts_without_keras_run_as_before(tmp_path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import builtins\nbuiltins.site_was_here = True\n")
    said = run_alone(tmp_path, "import sys\nprint(site_was_here, 'gyre' in sys.modules)\n", site)
    assert said.split() == ["True", "False"]


def test_without_the_option_nothing_is_substituted() -> None:
    with pytest.raises(ValueError, match="lr"):
        keras.optimizers.SGD(lr=0.1)
