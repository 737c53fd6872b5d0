"""`gyre run --keras-2018`: scripts for Keras 2.0 to 2.2 and TensorFlow 1 train unchanged, with the numbers of then, and
each substitution is named once."""

import importlib.util
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


def run_alone(tmp_path: Path, script: str, *folders: Path, **variables: str) -> str:
    (tmp_path / "alone.py").write_text(script)
    finished = subprocess.run(
        [sys.executable, "alone.py"],
        cwd=tmp_path,
        env={**environment(SHIM, *folders), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout + finished.stderr


# One function for each row of the guide's table, all run in one process.
ROWS = """
import glob, os, sys, traceback
import numpy as np
from tensorflow import keras
from tensorflow.keras import backend as K
import keras as other
import tensorflow as tf

x, y = np.ones((8, 3)), np.ones((8, 2))


def small(optimizer, **options):
    model = keras.models.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    model.compile(optimizer, loss='mse', **options)
    return model


def double(values):
    return values * 2


def sessions():
    # First: numbers of threads are fixed when TensorFlow computes.
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    config.gpu_options.allow_growth = True
    with tf.Session(config=config) as session:
        K.set_session(session)
    assert K.get_session() is session
    assert tf.config.threading.get_intra_op_parallelism_threads() == 1
    assert tf.config.threading.get_inter_op_parallelism_threads() == 2
    tf.set_random_seed(1)
    try:
        session.run(1)
    except RuntimeError as error:
        assert 'Session.run(): TensorFlow 2 has no sessions' in str(error)
    else:
        raise AssertionError('it ran')


def back_ends():
    assert K.backend() == os.environ['KERAS_BACKEND'] == 'tensorflow'  # It was cntk.
    import gyre.keras_2018
    os.environ['KERAS_BACKEND'] = 'theano'
    gyre.keras_2018._replace_back_end()
    assert os.environ['KERAS_BACKEND'] == 'tensorflow'


def optimizers():
    # Decay: the rate of step t is lr / (1 + decay * t), while `lr` stays what callbacks may read and assign.
    for traced in (True, False):
        one = keras.layers.Dense(1, use_bias=False, kernel_initializer='zeros', input_dim=1)
        model = keras.models.Sequential([one])
        opt = keras.optimizers.SGD(0.5, 0.0, 0.25)
        model.compile(opt, 'mse', ['mse'], run_eagerly=not traced)
        weight, ones = 0.0, np.ones((4, 1), 'float32')
        for step in range(6):
            model.train_on_batch(ones, ones)
            weight -= 0.5 / (1 + 0.25 * step) * 2 * (weight - 1)
            np.testing.assert_allclose(model.get_weights()[0].item(), weight, rtol=1e-5)
            if step == 2:
                assert float(K.get_value(opt.lr)) == 0.5
        opt.lr = 0.25
        K.set_value(opt.lr, 0.125)
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
    # RMSprop's epsilon is inside the root.
    variable, opt = other.Variable([0.0]), other.optimizers.rmsprop(lr=1.0, rho=0.5, epsilon=1.0)
    opt.apply([tf.constant([2.0])], [variable])
    np.testing.assert_allclose(variable.numpy(), -2 / np.sqrt(0.5 * 4 + 1), rtol=1e-6)
    # Keras 3 reads the file in the process of the test.
    model = small(keras.optimizers.Adam(lr=0.01, decay=0.1))
    model.fit(x, y, verbose=0)
    model.save('decay.keras')


def metrics():
    model = small('sgd', metrics=['accuracy', 'mae', 'mse', 'mape', 'msle'])
    history = model.fit(x, y, validation_data=(x, y), verbose=0).history
    of_training = {'acc', 'loss', 'mean_absolute_error', 'mean_squared_error', 'mean_absolute_percentage_error',
                   'mean_squared_logarithmic_error'}
    assert set(history) == of_training | {'val_' + name for name in of_training}
    model.fit(x, y, validation_data=(x, y), verbose=0,
              callbacks=[keras.callbacks.ModelCheckpoint('metric-{val_acc:.1f}.h5')])
    assert glob.glob('metric-?.?.h5')


def generators():
    def endless():
        while True:
            yield x, y

    model = small('sgd')
    model.fit_generator(endless(), 3, 2, 0, workers=4, max_queue_size=10, use_multiprocessing=True)
    assert int(K.get_value(model.optimizer.iterations)) == 6
    model.fit(x, y, batch_size=4, nb_epoch=2, verbose=0)
    assert int(K.get_value(model.optimizer.iterations)) == 10
    np.testing.assert_allclose(model.evaluate_generator(endless(), 2), model.evaluate(x, y, verbose=0), rtol=1e-5)
    assert model.predict_generator(endless(), steps=2, pickle_safe=False).shape == (16, 2)
    assert model.predict_classes(x).shape == (8,) and model.predict_proba(x).shape == (8, 2)
    # With a number of steps a Sequence goes round for ever: epochs go on where the one before ended.
    rising = Rising()
    counts = Counts()
    model.fit_generator(rising, steps_per_epoch=5, epochs=4, verbose=0, shuffle=False, callbacks=[counts],
                        validation_data=rising, validation_steps=7, class_weight=None)
    assert counts.steps == [5, 5, 5, 5], counts.steps
    np.testing.assert_allclose(model.predict_generator(rising, 8), model.predict(rising.pass_after_pass(8), verbose=0))
    assert abs(model.evaluate_generator(rising, steps=9) - model.evaluate(*rising.targets(9), 4, verbose=0)) < 1e-5
    flow = keras.preprocessing.image.ImageDataGenerator().flow(np.ones((10, 4, 4, 3)), np.ones((10, 2)), batch_size=4)
    images = keras.models.Sequential([keras.layers.Flatten(input_shape=(4, 4, 3)), keras.layers.Dense(2)])
    images.compile('sgd', 'mse')
    images.fit_generator(flow, steps_per_epoch=30, epochs=2, verbose=0, callbacks=[counts], class_weight={0: 1, 1: 2})
    assert counts.steps == [30, 30], counts.steps
    # Weights of classes, of a generator.
    before = model.get_weights()[1].copy()
    model.fit_generator(endless(), 1, 1, 0, class_weight={0: 0.0, 1: 0.0})
    np.testing.assert_array_equal(model.get_weights()[1], before)


class Rising(keras.utils.Sequence):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return np.full((4, 3), index + 1.0), np.full((4, 2), index + 1.0)

    def pass_after_pass(self, steps):
        return np.concatenate([self[step % 3][0] for step in range(steps)])

    def targets(self, steps):
        return self.pass_after_pass(steps), np.concatenate([self[step % 3][1] for step in range(steps)])


class Counts(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.steps = []

    def on_epoch_begin(self, epoch, logs=None):
        self.steps.append(0)

    def on_batch_end(self, batch, logs=None):
        self.steps[-1] += 1


def modules():
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
    from keras.preprocessing.image import ImageDataGenerator
    assert other.utils.np_utils.to_categorical is to_categorical and Dense is other.layers.Dense
    assert keras.preprocessing.text.Tokenizer is not None
    assert K.image_dim_ordering() == 'tf' and other.backend.int_shape(np.zeros((2, 3))) == (2, 3)
    assert K.get_value(tf.Variable(2.0)) == 2.0
    try:
        other.utils.no_such_name
    except AttributeError as error:
        assert "module 'keras" in str(error)
    else:
        raise AssertionError('found')
    images = np.random.RandomState(0).rand(4, 8, 8, 3)
    flipped = next(ImageDataGenerator(horizontal_flip=True).flow(images, batch_size=4, shuffle=False))
    assert all(np.allclose(f, i) or np.allclose(f, i[:, ::-1]) for f, i in zip(flipped, images))
    import importlib.util
    try:
        next(ImageDataGenerator(rotation_range=30).flow(images))
        assert importlib.util.find_spec('scipy')
    except ImportError as error:
        assert 'scipy' in str(error).lower() and not importlib.util.find_spec('scipy')


def checkpoints():
    model = small(keras.optimizers.Adam(lr=0.01), metrics=['mae'])
    checkpoint = keras.callbacks.ModelCheckpoint('w.{epoch:02d}-{val_mean_absolute_error:.9f}.hdf5', period=2)
    weights_only = keras.callbacks.ModelCheckpoint('only.h5', save_weights_only=True)
    odd = keras.callbacks.ModelCheckpoint('a name of any kind.hdf5', 'val_loss', 0, True)
    model.fit(x, y, epochs=4, validation_data=(x, y), callbacks=[checkpoint, weights_only, odd], verbose=0)
    assert [name[:4] for name in sorted(glob.glob('w.*.hdf5'))] == ['w.02', 'w.04']
    assert os.path.exists('a name of any kind.hdf5')
    model.save_weights('weights.h5')
    for name in ('only.h5', 'weights.h5'):
        loaded = small('sgd')
        loaded.load_weights(name)
        np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])


def boards():
    # There is no TensorBoard in this environment.
    board = keras.callbacks.TensorBoard('board', 0, 32, True, False, embeddings_layer_names=['a'])
    small('sgd').fit(x, y, validation_data=(x, y), callbacks=[board], verbose=0)
    assert glob.glob('board/**/events.out.tfevents.*', recursive=True)


def loading():
    model = small(keras.optimizers.Adam(lr=0.01, decay=0.1))
    model.add(keras.layers.Lambda(double))
    model.compile(keras.optimizers.Adam(lr=0.01, decay=0.1), loss='mse', metrics=['mae'])
    model.fit(x, y, epochs=4, verbose=0)
    model.save('model.h5')
    wrapped = []

    def wrap(**options):
        wrapped.append(keras.optimizers.Adam(**options))
        return wrapped[0]

    # Keras 2 looked for optimizers in lower case.
    loaded = [keras.models.load_model('model.h5', custom_objects=objects) for objects in (None, {'adam': wrap})]
    for one in loaded:
        assert int(K.get_value(one.optimizer.iterations)) == 4 and one.optimizer.decay == 0.1
    for one in (model, *loaded):
        one.fit(x, y, epochs=1, verbose=0, shuffle=False)
    for one in loaded:
        for a, b in zip(model.get_weights(), one.get_weights()):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert wrapped


for row in (sessions, back_ends, optimizers, metrics, generators, modules, checkpoints, boards, loading):
    try:
        row()
        print('passed:', row.__name__, flush=True)
    except Exception:
        print('failed:', row.__name__, traceback.format_exc(), flush=True)
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> tuple[Path, str]:
    """The folder where the rows' script ran, and what it said."""
    folder = tmp_path_factory.mktemp("rows")
    return folder, run_alone(folder, ROWS, KERAS_BACKEND="cntk")


def check_row(rows: tuple[Path, str], name: str, *reports: str) -> None:
    said = rows[1]
    assert f"passed: {name}\n" in said, said
    for report in reports:
        assert said.count(f"gyre: --keras-2018: {report}") == 1, said


def test_sessions_hold_numbers_of_threads_and_do_not_run(rows) -> None:
    check_row(rows, "sessions", "tf.ConfigProto: ", "tf.Session: ", "K.set_session(): there are no sessions")


def test_back_ends_that_are_gone_become_tensorflow(rows) -> None:
    check_row(rows, "back_ends", "KERAS_BACKEND=cntk: tensorflow", "KERAS_BACKEND=theano: tensorflow")


def test_optimizers_have_the_arguments_defaults_and_decay_of_then(rows) -> None:
    check_row(rows, "optimizers", "keras.optimizers.sgd: ", "optimizers' lr=", "optimizers' decay=", "optimizer.lr: ")
    with pytest.warns(UserWarning, match="`decay` is no longer supported and will be ignored"):
        loaded = keras.models.load_model(rows[0] / "decay.keras")
    assert float(loaded.optimizer.learning_rate.numpy()) == pytest.approx(0.01)


def test_metrics_have_the_names_of_then(rows) -> None:
    check_row(rows, "metrics", "metrics=['accuracy']: called acc and val_acc", "metrics=['mae']: ")


def test_generators_train_through_fit(rows) -> None:
    check_row(rows, "generators", "fit_generator(): fit()", "workers=: has no effect", "nb_epoch=: epochs=")
    check_row(rows, "generators", "evaluate_generator(): ", "predict_generator(): ", "predict_classes(): ")


def test_modules_that_are_gone_are_found(rows) -> None:
    check_row(rows, "modules", "keras.preprocessing.image.ImageDataGenerator: ", "K.image_dim_ordering(): ")


def test_checkpoints_have_any_name_and_every_so_many_epochs(rows) -> None:
    check_row(rows, "checkpoints", "ModelCheckpoint(period=): ", "save_weights(): ")


def test_tensor_boards_files_are_written_without_it(rows) -> None:
    # TensorFlow 2.16 brings tensorboard along.
    without = [] if importlib.util.find_spec("tensorboard") else ["TensorBoard(): is not installed here"]
    check_row(rows, "boards", "TensorBoard(batch_size=): has no effect", *without)


def test_models_are_loaded_with_state_losses_and_functions(rows) -> None:
    check_row(rows, "loading")


def test_another_sitecustomize_and_scripts_without_keras_run_as_before(tmp_path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import builtins\nbuiltins.site_was_here = True\n")
    said = run_alone(tmp_path, "import sys\nprint(site_was_here, 'gyre' in sys.modules)\n", site)
    assert said.split() == ["True", "False"]


def test_without_the_option_nothing_is_substituted() -> None:
    with pytest.raises(ValueError, match="lr"):
        keras.optimizers.SGD(lr=0.1)
