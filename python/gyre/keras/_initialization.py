"""init() for Keras."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import keras

from gyre._job import initialization
from gyre._job.process_sets import ProcessSet


def init(comm: Any = None, process_sets: str | Sequence[ProcessSet] | None = None) -> None:
    """Makes this process a rank of the job that its launcher describes; see gyre.torch.init. Under TensorFlow each rank
    then computes with its share of the host's cores, unless TF_NUM_INTRAOP_THREADS or tf.config says how many: call it
    before TensorFlow computes anything."""
    initialization.init(comm, process_sets)
    if keras.backend.backend() == "tensorflow":
        importlib.import_module("gyre._tensorflow.threads").share_cores()
