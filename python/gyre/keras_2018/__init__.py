"""Runs scripts that were written for Keras 2.0 to 2.2 and TensorFlow 1 with Keras 3, as far as they train models.

    gyre run --keras-2018 -n 4 -- python train.py

or, before Keras and TensorFlow are imported, `import gyre.keras_2018; gyre.keras_2018.install()`. What Keras 3 renamed
or dropped is there again under its old name: optimizers with `lr` and `decay`, the metric `acc`, `fit_generator()`,
`keras.preprocessing.image`, `tf.ConfigProto`, `K.set_session()` and others (docs/guide/from_keras.md lists them). Each
substitution that a script uses is named once, on rank 0's standard error. Nothing here changes what a script for
Keras 3 does, except that its metric "accuracy" is called "acc".
"""

from __future__ import annotations

import os
import sys

from gyre.keras_2018._finder import Finder
from gyre.keras_2018._report import report

__all__ = ["install"]


def install() -> Finder:
    """From now on imports of Keras and TensorFlow get the names of 2018. Once for a process; before their first
    import."""
    for finder in sys.meta_path:
        if isinstance(finder, Finder):
            return finder
    _replace_back_end()
    finder = Finder()
    sys.meta_path.insert(0, finder)
    return finder


def _replace_back_end() -> None:
    """Of the back ends of then Keras 3 has TensorFlow alone."""
    chosen = os.environ.get("KERAS_BACKEND")
    if chosen in ("cntk", "theano"):
        report(f"KERAS_BACKEND={chosen}", "tensorflow")
        os.environ["KERAS_BACKEND"] = "tensorflow"
