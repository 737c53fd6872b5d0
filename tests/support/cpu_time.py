"""A plugin: the CPU time of each test, its processes' included, for `./dev test --durations`."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from process_tree import cpu_seconds

BEFORE = pytest.StashKey[float]()
PROPERTY = "cpu_seconds"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[BEFORE] = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        item.user_properties.append((PROPERTY, f"{cpu_seconds() - item.stash[BEFORE]:.2f}"))
