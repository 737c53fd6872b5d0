"""The forms in which a process group's methods are called: with lists and an options object, as torch.distributed's
functions do, or with one tensor and plain arguments (`group.allreduce(tensor, op=ReduceOp.MAX)`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ReduceOp

_NO_LIMIT = timedelta(0)
_OPERATIONS = (ReduceOp, ReduceOp.RedOpType)


def listed(tensors: Sequence[torch.Tensor] | torch.Tensor) -> Sequence[torch.Tensor]:
    """A single tensor as the list of it."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def listed_pair(lists: Sequence[Any], tensors: Any) -> tuple[Any, Any]:
    """([list of tensors], [tensor]), also from (list of tensors, tensor)."""
    return ([lists], [tensors]) if isinstance(tensors, torch.Tensor) else (lists, tensors)


def options_of(class_: Any, *given: Any, root: Any = None, op: Any = None, timeout: Any = None) -> Any:
    """The options object among `given`, or a new one made from the other arguments: a root's rank, a ReduceOp, a
    time limit, in any order. TypeError for anything else."""
    for value in given:
        if isinstance(value, class_):
            return value
        if isinstance(value, _OPERATIONS):
            op = value
        elif isinstance(value, timedelta):
            timeout = value
        elif isinstance(value, int):
            root = value
        elif value is not None:
            raise TypeError(f"expected a {class_.__name__}, got {type(value).__name__}")
    made = class_()
    if root is not None:
        made.rootRank = root
    if op is not None:
        made.reduceOp = op
    if timeout is not None:
        made.timeout = timeout
    return made


def limit_of(options: Any) -> timedelta:
    """An operation's own time limit, or a group's; torch writes "none" as a negative one."""
    timeout: timedelta = options if isinstance(options, timedelta) else getattr(options, "timeout", _NO_LIMIT)
    return timeout if timeout > _NO_LIMIT else _NO_LIMIT
