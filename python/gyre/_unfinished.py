"""The operations under way, which keep their memory while the engine works in it, whoever drops them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

# How many that are still under way one call looks at: an operation costs the same however many there are.
_MOST_LOOKED_AT = 4


class Operation(Protocol):
    """Something whose memory must stay until it is done."""

    def done(self) -> bool: ...


class Unfinished:
    """A set of operations, from which those that are done drop out as others come. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: OrderedDict[Operation, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._operations)

    def add(self, operation: Operation) -> None:
        with self._lock:
            self._operations[operation] = None
        self.let_go_of_finished()

    def discard(self, operation: Operation) -> None:
        with self._lock:
            self._operations.pop(operation, None)

    def clear(self) -> None:
        with self._lock:
            finished, self._operations = self._operations, OrderedDict()
        del finished  # Outside the lock, as below.

    def let_go_of_finished(self) -> None:
        """Looks at some of them in turn; all that are done and stand one after the other go at once. Call it where an
        operation begins, so that nothing stays for long after its end."""
        if not self._operations:
            return
        finished = []
        with self._lock:
            looked_at = 0
            while self._operations and looked_at < _MOST_LOOKED_AT:
                operation, _ = self._operations.popitem(last=False)
                if operation.done():
                    finished.append(operation)
                else:
                    self._operations[operation] = None
                    looked_at += 1
        del finished  # Here, because the last reference to a tensor may go with it, and anything may run then.
