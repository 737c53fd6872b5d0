"""A job that begins many operations before it waits for one must not pay more for each of them, nor keep the memory of
those that are done."""

from __future__ import annotations

import weakref

from gyre._unfinished import Unfinished


class Counting:
    """How often operations are looked at."""

    looks = 0


class Operation:
    def __init__(self) -> None:
        self.is_done = False

    def done(self) -> bool:
        Counting.looks += 1
        return self.is_done


def test_the_cost_of_an_operation_does_not_grow_with_their_number() -> None:
    unfinished, operations = Unfinished(), [Operation() for _ in range(5000)]
    Counting.looks = 0
    for operation in operations:
        unfinished.add(operation)
    assert Counting.looks <= 4 * len(operations)
    assert len(unfinished) == len(operations)


def test_finished_operations_are_let_go_although_others_wait() -> None:
    unfinished = Unfinished()
    waiting = [Operation() for _ in range(100)]
    for operation in waiting:
        unfinished.add(operation)
    gone: list[weakref.ref[Operation]] = []
    for _ in range(1000):
        operation = Operation()
        unfinished.add(operation)
        operation.is_done = True
        gone.append(weakref.ref(operation))
        del operation
    for _ in range(50):
        unfinished.let_go_of_finished()
    assert len(unfinished) == len(waiting)
    assert not any(reference() for reference in gone)
    waiting[7].is_done = True
    unfinished.discard(waiting[8])
    unfinished.discard(waiting[8])
    for _ in range(50):
        unfinished.let_go_of_finished()
    assert len(unfinished) == len(waiting) - 2
    unfinished.clear()
    assert len(unfinished) == 0
