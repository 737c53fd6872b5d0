"""What the arguments `op` and `average` of Horovod's operations mean, for every framework."""

from __future__ import annotations

import warnings

from gyre._operations import ReduceOperation
from gyre.errors import InvalidArgumentError


def resolve_operation(op: ReduceOperation | None, average: bool | None) -> ReduceOperation:
    """`op`, or what Horovod's deprecated `average` means; Average when neither is given. To be called by the operation
    itself: the warning about `average` names the line that has called that."""
    if average is not None:
        if op is not None:
            raise InvalidArgumentError("give either op or the deprecated average, not both")
        warnings.warn("average is deprecated: use op=Average or op=Sum", DeprecationWarning, stacklevel=3)
        return ReduceOperation.AVERAGE if average else ReduceOperation.SUM
    if op is None:
        return ReduceOperation.AVERAGE
    if not isinstance(op, ReduceOperation):
        raise InvalidArgumentError(f"op must be one of Average, Sum, Min, Max, Product and Adasum, not {op!r}")
    return op
