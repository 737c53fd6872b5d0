"""Results to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gyre._devices.interruption import note_seen
from gyre._runtime import Runtime
from gyre.core import _core
from gyre.errors import Error


class Handle:
    """The current or future result of an asynchronous operation, for `poll` and `synchronize`. Thread-safe.

    The tensors of the operation stay alive until it is done, even if the handle is dropped before.
    """

    __slots__ = ("__weakref__", "_before", "_core_handles", "_finish", "_lock", "_memory", "_result", "_runtime")

    def __init__(
        self,
        runtime: Runtime,
        core_handles: Sequence[_core.Handle],
        memory: object,
        finish: Callable[[Sequence[_core.Handle]], Any],
        before: Handle | None = None,
    ) -> None:
        """`memory`: what must stay alive until the end. `finish` makes the result, once, when all handles are done,
        and the one `before`, from whose result this one's is made."""
        self._before = before
        self._runtime = runtime
        self._core_handles = core_handles
        self._memory: object | None = memory
        self._finish: Callable[[Sequence[_core.Handle]], Any] | None = finish
        self._result: Any = None
        self._lock = threading.Lock()
        runtime.unfinished.add(self)

    def done(self) -> bool:
        """Whether wait() would return at once, with the result or with an error."""
        if self._before is not None and not self._before.done():
            return False
        return all(handle.done() for handle in self._core_handles)

    def wait(self) -> Any:
        """The operation's result: a tensor, or as its function documents. Sleeps, without the GIL, until it is
        available.

        Raises the operation's error (gyre.Error) on every call; Ctrl-C ends the wait, not the operation.
        """
        if self._before is not None:
            self._before.wait()
        for handle in self._core_handles:
            self._wait_one(handle)
        with self._lock:
            if self._finish is not None:
                self._result = self._finish(self._core_handles)
                self._let_go()
        return self._result

    def __call__(self) -> Any:
        """wait(), for the handles of sparse_allreduce_async(), which in Horovod are functions to call."""
        return self.wait()

    def _wait_one(self, handle: _core.Handle) -> None:
        try:
            self._runtime.wait_for(handle.wait, "")
        except BaseException as failure:
            if isinstance(failure, Error):
                note_seen()
            if self.done():
                self._runtime.unfinished.discard(self)
            raise

    def _let_go(self) -> None:
        self._finish = None
        self._memory = None
        self._runtime.unfinished.discard(self)


class TensorHandle(Handle):
    """For one operation from one tensor's memory into another's, which is the result.

    Thousands may be in flight at once, and the garbage collector visits each object that may refer to others: this
    one needs no list, closure, tuple or lock."""

    __slots__ = ("_core_handle",)

    def __init__(self, runtime: Runtime, core_handle: _core.Handle, source: torch.Tensor, target: torch.Tensor) -> None:
        self._runtime = runtime
        self._core_handle = core_handle
        self._memory = source
        self._result = target
        runtime.unfinished.add(self)

    def done(self) -> bool:
        return self._core_handle.done()

    def wait(self) -> Any:
        try:
            self._runtime.wait_for(self._core_handle.wait, "")
        finally:
            if self._memory is not None and self._core_handle.done():
                self._memory = None
                self._runtime.unfinished.discard(self)
        return self._result


def poll(handle: Handle) -> bool:
    """Whether `handle` is done, so that synchronize() would not wait. TypeError for anything that is not a handle."""
    return _checked(handle).done()


def synchronize(handle: Handle) -> Any:
    """Waits until `handle` is done and returns the operation's result: see Handle.wait(). TypeError for anything
    that is not a handle."""
    return _checked(handle).wait()


def _checked(handle: object) -> Handle:
    if not isinstance(handle, Handle):
        raise TypeError(f"expected the handle of an asynchronous operation, got {type(handle).__name__}")
    return handle
