"""The clean-up of process groups that the script did not destroy before it ended."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import TYPE_CHECKING

from gyre._runtime import announce_end, last_words
from gyre.errors import Error

if TYPE_CHECKING:
    from gyre.distributed.process_group import ProcessGroup


class _Groups:
    """The groups alive in this process, newest last."""

    def __init__(self) -> None:
        self.alive: list[ProcessGroup] = []
        self.exit_hook_registered = False
        self.have_failed = False  # When the program had ended.


_groups = _Groups()


def register(group: ProcessGroup) -> None:
    _groups.alive.append(group)
    if not _groups.exit_hook_registered:
        _groups.exit_hook_registered = True
        atexit.register(_end_at_exit, os.getpid())


def forget(group: ProcessGroup) -> None:
    if group in _groups.alive:
        _groups.alive.remove(group)


def _end_at_exit(process: int) -> None:
    if os.getpid() != process:
        return
    if getattr(sys, "last_value", None) is None:
        _compare_last_calls()
    if not _groups.have_failed:
        announce_end()
    words = last_words()
    for group in reversed(list(_groups.alive)):
        try:
            if words is not None and group.size() > 1:
                group.abort(f"rank {group.rank()} (process {process}) ended with {words}")
            group.shutdown()
        except Error as error:
            # The interpreter is shutting down: an exception would reach nobody.
            print(f"gyre: rank {group.rank()} could not leave its group in good order: {error}", file=sys.stderr)


def _compare_last_calls() -> None:
    for group in reversed(list(_groups.alive)):
        try:
            group.other_devices.finish()
        except Error as error:
            print(f"gyre: rank {group.rank()}: {type(error).__name__}: {error}", file=sys.stderr)
            _groups.have_failed = True


def _fail_at_exit() -> None:
    """Python ends with exit code 0 whatever functions like this one raise."""
    if _groups.have_failed:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


# At the import, so that functions which programs register later have run before.
atexit.register(_fail_at_exit)
