"""A plugin that names each test that leaves a process or an open port behind; tools/dev/junit_counts.py prints what it
has found. With GYRE_TEST_LEFTOVERS=fail such a test fails, and the process is killed.

A test's processes are those that carry its variable, wherever they have gone, and those below this process that it has
added. Those of a fixture of several tests carry the fixture's name, and must have ended when the last test has, or are
killed where the tests' process crashes.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import suppress

import pytest
from process_tree import (
    TEST_VARIABLE,
    all_processes,
    children_of,
    command_of,
    is_alive,
    listening_ports,
    variable_of,
    with_descendants,
)
from xdist.workermanage import WorkerController

# This process: as xdist calls it, which starts several.
OWNER = ".".join([*(os.environ.get(f"PYTEST_XDIST_{name}", "") for name in ("TESTRUNUID", "WORKER")), str(os.getpid())])
# Python's own, which ends with the tests' process.
OF_MULTIPROCESSING = "multiprocessing.resource_tracker"
IS_FAILURE = os.environ.get("GYRE_TEST_LEFTOVERS") == "fail"
# What has been told to end may take so long on a busy machine. The tests of this plugin shorten it.
LONGEST_END_SECONDS = float(os.environ.get("GYRE_TEST_END_SECONDS", "10" if IS_FAILURE else "2"))


class Leftovers:
    """What was there before the test that runs now, and what fixtures of several tests have added."""

    def __init__(self) -> None:
        self._shared_children: set[int] = set()
        self._shared_ports: set[int] = set()
        self._fixtures: set[str] = set()
        self._tests = 0
        self._start()

    def _start(self) -> None:
        self._tests += 1
        self._mark(str(self._tests))
        self._processes = all_processes()
        self._children = children_of(os.getpid())
        self._ports = listening_ports(os.getpid())

    def _mark(self, name: str) -> None:
        self._marker = f"{OWNER}.{name}"
        os.environ[TEST_VARIABLE] = self._marker

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        self._start()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        marker, children, ports = self._marker, children_of(os.getpid()), listening_ports(os.getpid())
        self._fixtures.add(fixturedef.argname)
        self._mark(fixturedef.argname)
        try:
            return (yield)
        finally:
            self._marker = os.environ[TEST_VARIABLE] = marker
            self._shared_children |= children_of(os.getpid()) - children
            self._shared_ports |= listening_ports(os.getpid()) - ports

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        result = yield
        # What only the test's arguments hold ends now, as it would a moment later.
        getattr(item, "funcargs", {}).clear()
        found = self._left(self._of_this_test, self._ports | self._shared_ports)
        if nextitem is None:
            of_fixtures = self._left(self._of_fixtures, self._ports - self._shared_ports)
            found += [f"{line}, of a fixture of several tests" for line in of_fixtures]
        item.user_properties += [("left_behind", line) for line in found]
        if found and IS_FAILURE:
            pytest.fail("left behind: " + "\n             ".join(found), pytrace=False)
        return result

    def _of_this_test(self) -> set[int]:
        added = children_of(os.getpid()) - self._children - self._shared_children
        marked = {pid for pid in all_processes() - self._processes if variable_of(pid, TEST_VARIABLE) == self._marker}
        found = {pid for pid in marked.union(with_descendants(added)) if is_alive(pid)}
        # A test may start a fixture's process again.
        own = {pid for pid in found if variable_of(pid, TEST_VARIABLE) not in self._fixture_markers()}
        return {pid for pid in own if OF_MULTIPROCESSING not in command_of(pid)}

    def _fixture_markers(self) -> set[str]:
        return {f"{OWNER}.{name}" for name in self._fixtures}

    def _of_fixtures(self) -> set[int]:
        markers = self._fixture_markers()
        marked = {pid for pid in all_processes() if variable_of(pid, TEST_VARIABLE) in markers}
        return {pid for pid in marked.union(with_descendants(self._shared_children)) if is_alive(pid)}

    def _left(self, processes: Callable[[], set[int]], ports: set[int]) -> list[str]:
        """A line for each process and port that is there although it had the time to go."""
        until = time.monotonic() + LONGEST_END_SECONDS
        while processes() or self._open(ports):
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        lines = []
        for pid in sorted(processes()):
            listens = "".join(f", which listens on port {port}" for port in sorted(listening_ports(pid)))
            lines.append(f"process {pid} ({command_of(pid)}){listens}")
            if IS_FAILURE:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        lines += [f"port {port}, open in the tests' own process" for port in sorted(self._open(ports))]
        return lines

    @staticmethod
    def _open(known: set[int]) -> set[int]:
        if listening_ports(os.getpid()) - known:
            gc.collect()  # A socket that nobody refers to any more is closed by this.
        return listening_ports(os.getpid()) - known


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController, error: object) -> None:
    """A process of xdist that has crashed has ended nothing of its own; in pytest's own process."""
    owner = f"{node.workerinput['testrunuid']}.{node.gateway.id}."
    for pid in all_processes() if error else ():
        if variable_of(pid, TEST_VARIABLE).startswith(owner):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Leftovers(), "gyre-leftovers")
