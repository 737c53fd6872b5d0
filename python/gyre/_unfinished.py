"""Operations in flight, which keep their memory alive while the engine uses it, even if the caller drops them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

# How many unfinished operations one call looks at: the cost of an operation does not depend on their number.
_LOOKED_AT = 4
# A new operation pays for a single look, which is enough: for each one added, a finished one can be removed.
_LOOKED_AT_BY_A_NEW_ONE = 1


class Operation(Protocol):
    """Something whose memory must stay alive until it is done."""

    def done(self) -> bool: ...


class Unfinished:
    """A set of operations, from which finished ones are removed as others are added. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: OrderedDict[Operation, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._operations)

    def add(self, operation: Operation) -> None:
        with self._lock:
            finished = self._take_finished(_LOOKED_AT_BY_A_NEW_ONE)
            self._operations[operation] = None
        del finished  # Outside the lock, as below.

    def discard(self, operation: Operation) -> None:
        with self._lock:
            self._operations.pop(operation, None)

    def clear(self) -> None:
        with self._lock:
            finished, self._operations = self._operations, OrderedDict()
        del finished  # Outside the lock, as below.

    def let_go_of_finished(self) -> None:
        """Looks at some of them in turn; removes consecutive finished ones together. Call it when an operation begins,
        so that nothing stays for long after its end."""
        if not self._operations:
            return
        with self._lock:
            finished = self._take_finished(_LOOKED_AT)
        del finished  # Here, because the last reference to a tensor may go with it, and anything may run then.

    def _take_finished(self, looks: int) -> list[Operation] | None:
        """The finished ones at the front, and up to so many others, which move to the back."""
        operations = self._operations
        finished = None
        while operations:
            operation = next(iter(operations))
            if operation.done():
                del operations[operation]
                if finished is None:
                    finished = []
                finished.append(operation)
                continue
            operations.move_to_end(operation)
            looks -= 1
            if looks == 0:
                break
        return finished
