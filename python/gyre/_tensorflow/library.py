"""The library of ops for tf.function, and how it reaches the engine."""

from __future__ import annotations

import ctypes
import functools
import warnings
from pathlib import Path
from typing import Any

import tensorflow as tf

from gyre.core import _core

FILE = Path(__file__).with_name("libgyre_tensorflow.so")


@functools.cache
def library() -> Any | None:
    """The module of its ops; None, after a warning, if this TensorFlow cannot load them: then one Python function per
    step exchanges all gradients, after backward has ended."""
    try:
        ops = tf.load_op_library(str(FILE))
        use = ctypes.CDLL(str(FILE)).gyre_use_plan_functions
        use.argtypes, use.restype = [ctypes.c_void_p], ctypes.c_bool
        if not use(_core.plan_functions()):
            raise ImportError("TensorFlow has refused its ops")
    except (tf.errors.OpError, OSError, ImportError) as error:
        warnings.warn(
            f"TensorFlow {tf.__version__} cannot load {FILE.name} ({str(error).splitlines()[0]}): gradients are "
            "exchanged by a Python function at the end of backward, which is slower",
            stacklevel=2,
        )
        return None
    return ops
