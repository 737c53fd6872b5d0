"""Imports Keras with torch underneath: before its first import it must be told so."""

import os

os.environ["KERAS_BACKEND"] = "torch"
