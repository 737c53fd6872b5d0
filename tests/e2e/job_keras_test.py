"""Jobs of Batch AI that train with Keras: in a toolkit's processes, with KERAS_BACKEND from the job file, and with the
names of 2018 where the job asks for them. Needs .venv/tensorflow, as tests/tensorflow does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from article_job import make_share
from keras_job import run_job

# As Batch AI's recipes call it; a small network instead of MNIST's.
KERAS = """
import os, sys
import numpy as np
import keras

print("backend", keras.backend.backend(), "asked for", os.environ["KERAS_BACKEND"], "arguments", sys.argv[1:])
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2)])
model.compile("rmsprop", "mse")
x = np.random.default_rng(1).standard_normal((64, 8)).astype("float32")
history = model.fit(x, x[:, :2], batch_size=16, epochs=2, verbose=0)
print("trained", history.history["loss"][1] < history.history["loss"][0])
model.save(os.path.join(os.environ["AZ_BATCHAI_OUTPUT_MODEL"], "model.keras"))
"""

HOROVOD_2018 = """
import os
import numpy as np
import horovod.keras as hvd
import keras
from keras import backend as K
import tensorflow as tf

hvd.init()
K.set_session(tf.Session(config=tf.ConfigProto()))
model = keras.models.Sequential()
model.add(keras.layers.Dense(4, activation="relu", input_shape=(8,)))
model.add(keras.layers.Dense(2, activation="softmax"))
opt = hvd.DistributedOptimizer(keras.optimizers.rmsprop(lr=0.001 * hvd.size(), decay=1e-6))
model.compile(loss="categorical_crossentropy", optimizer=opt, metrics=["accuracy"])
x = np.random.RandomState(hvd.rank()).standard_normal((64, 8))
y = keras.utils.to_categorical(x[:, 0] > 0, 2)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=callbacks)
rows = hvd.allgather(np.concatenate([w.ravel() for w in model.get_weights()])[None])
print("rank", hvd.rank(), "of", hvd.size(), "on", os.environ["AZ_BATCH_NODE_ID"], K.backend(), sorted(history.history),
      "agrees", bool((rows == rows[0]).all()), flush=True)
"""


@pytest.fixture
def share() -> Iterator[Path]:
    with make_share() as folder:
        yield folder


@pytest.mark.parametrize(
    ("block", "arguments"),
    [
        ({"tensorFlowSettings": {"masterCommandLineArgs": "--epochs 2"}}, "['--epochs', '2']"),
        ({"cntkSettings": {"languageType": "Python", "commandLineArgs": "--epochs 2"}}, "['--epochs', '2']"),
    ],
    ids=["tensorflow", "cntk"],
)
def test_keras_trains_in_a_toolkits_process_on_the_back_end_of_the_job_file(
    gyre: Path, share: Path, block: dict[str, Any], arguments: str
) -> None:
    said = run_job(gyre, share, KERAS, 1, block, KERAS_BACKEND="tensorflow")
    assert f"backend tensorflow asked for tensorflow arguments {arguments}" in said
    assert "trained True" in said
    assert len(list(share.glob("**/outputs/models/model.keras"))) == 1
    log = "stdout-wk-0.txt" if "tensorFlowSettings" in block else "stdout.txt"
    assert len(list(share.glob(f"**/stdouterr/{log}"))) == 1


def test_a_horovod_script_of_2018_trains_on_two_nodes_with_the_names_of_then(gyre: Path, share: Path) -> None:
    """Its ranks are started by a line that Gyre writes, so only a variable can ask for the names; and mpirun, which may
    be there, would start them without."""
    block = {"horovodSettings": {"processCount": 2}}
    said = run_job(gyre, share, HOROVOD_2018, 2, block, GYRE_KERAS_2018="1", KERAS_BACKEND="theano")
    ranks = sorted(line.partition("rank ")[2].split() for line in said.splitlines() if "agrees" in line)
    assert [words[:3] for words in ranks] == [["0", "of", "2"], ["1", "of", "2"]], said
    assert len({words[4] for words in ranks}) == 2
    for words in ranks:
        assert words[5:] == ["tensorflow", "['acc',", "'loss']", "agrees", "True"]
    assert said.count("--keras-2018: KERAS_BACKEND=theano: tensorflow") == 1
    assert said.count("--keras-2018: keras.optimizers.rmsprop") == 1
