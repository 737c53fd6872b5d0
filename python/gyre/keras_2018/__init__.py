"""Runs scripts that were written for Keras 2.0 to 2.2 and TensorFlow 1 with Keras 3, as far as they train models.

    gyre run --keras-2018 -n 4 -- python train.py

or, before Keras, TensorFlow and Horovod are imported, `import gyre.keras_2018; gyre.keras_2018.install()`. What Keras 3
renamed or dropped is there again under its old name: optimizers with `lr` and `decay`, the metric `acc`,
`fit_generator()`, `keras.preprocessing.image`, `tf.ConfigProto`, `K.set_session()` and others
(docs/guide/from_keras.md lists them); `import horovod` gets Gyre. Each substitution that a script uses is named once,
on rank 0's standard error. Nothing here changes what a script for Keras 3 does, except that its metric "accuracy" is
called "acc".
"""

from __future__ import annotations

import os

from gyre import horovod
from gyre._keras_2 import finder
from gyre._keras_2.report import report
from gyre.keras_2018._names import NAMES

__all__ = ["install", "install_names"]


def install() -> None:
    """From now on imports of Keras and TensorFlow get the names of 2018, and `import horovod` gets Gyre unless Horovod
    itself is installed. Once for a process; before the first import of Keras, TensorFlow and Horovod."""
    install_names()
    horovod.install()


def install_names() -> finder.Finder:
    """The names of Keras and TensorFlow alone: `gyre run --keras-2018` makes Gyre importable as `horovod` itself."""
    found = finder.install(NAMES)
    _replace_back_end()
    return found


def _replace_back_end() -> None:
    """Of the back ends of then Keras 3 has TensorFlow alone."""
    chosen = os.environ.get("KERAS_BACKEND")
    if chosen in ("cntk", "theano"):
        report(f"KERAS_BACKEND={chosen}", "tensorflow")
        os.environ["KERAS_BACKEND"] = "tensorflow"
