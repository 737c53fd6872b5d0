"""A script that still says `average=` must find the line to change."""

import inspect
import warnings

import pytest

from gyre._job.operation_argument import resolve_operation
from gyre._operations import ReduceOperation
from gyre.errors import InvalidArgumentError


def operation(op: ReduceOperation | None = None, average: bool | None = None) -> ReduceOperation:
    """As allreduce() of every framework calls it."""
    return resolve_operation(op, average)


def test_the_old_argument_means_what_it_did_and_the_warning_names_the_callers_line() -> None:
    frame = inspect.currentframe()
    assert frame is not None
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert operation(average=True) == ReduceOperation.AVERAGE
        line = frame.f_lineno - 1
        assert operation(average=False) == ReduceOperation.SUM
    assert [warning.category for warning in found] == [DeprecationWarning] * 2
    assert (found[0].filename, found[0].lineno) == (__file__, line)


def test_nothing_means_average_and_what_is_no_operation_is_refused() -> None:
    assert operation() == ReduceOperation.AVERAGE
    assert operation(ReduceOperation.MIN) == ReduceOperation.MIN
    with pytest.raises(InvalidArgumentError, match="not both"):
        operation(ReduceOperation.SUM, average=True)
    with pytest.raises(InvalidArgumentError, match="op must be one of Average"):
        operation("sum")  # type: ignore[arg-type]
