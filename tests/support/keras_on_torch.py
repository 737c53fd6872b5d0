"""Imports Keras with torch underneath: before its first import it must be told so. Programs that other tests start are
not told."""

import os

_before = os.environ.get("KERAS_BACKEND")
os.environ["KERAS_BACKEND"] = "torch"
import keras  # noqa: E402, F401

if _before is None:
    del os.environ["KERAS_BACKEND"]
else:
    os.environ["KERAS_BACKEND"] = _before
