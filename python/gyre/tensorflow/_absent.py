"""Horovod's names for what TensorFlow no longer has: each says what to use."""

from __future__ import annotations

from typing import Any, NoReturn

from gyre.errors import UnsupportedError


def broadcast_global_variables(root_rank: int) -> NoReturn:
    """UnsupportedError."""
    raise UnsupportedError(
        f"broadcast_global_variables({root_rank}): there is no collection of all variables since TensorFlow 2; use "
        "broadcast_variables(model.variables, root_rank)"
    )


def broadcast_object_fn(*arguments: Any, **options: Any) -> NoReturn:
    """UnsupportedError."""
    del arguments, options
    raise UnsupportedError(
        "broadcast_object_fn() needs the sessions of TensorFlow 1; use broadcast_object(obj, root_rank)"
    )


class BroadcastGlobalVariablesHook:
    """UnsupportedError when made."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        del arguments, options
        raise UnsupportedError(
            "BroadcastGlobalVariablesHook is for the estimators of TensorFlow 1; use broadcast_variables(), or "
            "gyre.keras.callbacks.BroadcastGlobalVariablesCallback in fit()"
        )
