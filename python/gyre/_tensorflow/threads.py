"""How many threads TensorFlow computes with."""

from __future__ import annotations

import contextlib
import os

import tensorflow as tf

from gyre._runtime import current
from gyre.core import _core

_VARIABLES = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def share_cores() -> None:
    """Gives this rank its share of the host's cores, where TensorFlow would take them all on every rank. Not if the
    user has said how many, nor if TensorFlow has begun to compute, after which it cannot change."""
    ranks_here = current().place["local_size"]
    threading = tf.config.threading
    asked_for = threading.get_intra_op_parallelism_threads() or threading.get_inter_op_parallelism_threads()
    if ranks_here == 1 or asked_for or any(os.environ.get(name) for name in _VARIABLES):
        return
    cores = max(1, _core.usable_cores() // ranks_here)
    with contextlib.suppress(RuntimeError):
        threading.set_intra_op_parallelism_threads(cores)
        threading.set_inter_op_parallelism_threads(max(2, cores))
