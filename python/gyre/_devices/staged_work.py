"""A process group's exchange of tensors on a device through host memory.

The call waits on the host until the device has written the tensors that it sends. From then on nothing does: a Work's
wait() makes the current stream wait for the copies back, as a device's own backend would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from gyre._devices.staging import Landing, Pair, current_stream, to_host, twin_of
from gyre.errors import InvalidArgumentError, UnsupportedError

_NO_TIMEOUT = timedelta(0)
# The methods of a process group whose first argument is not only written.
_BOTH_WAYS = {"allreduce", "allreduce_coalesced", "broadcast", "reduce"}
_READ_ONLY = {"send"}
_SEQUENCES = (list, tuple)


class _Twins:
    """The host's side of the tensors of one call."""

    def __init__(self, action: str, device: torch.device) -> None:
        self._action = action
        self._device = device

    def of(self, value: Any, pairs: list[Pair]) -> Any:
        """`value`, with the twins in place of its tensors, all of which are added to `pairs`."""
        if isinstance(value, _SEQUENCES):
            return [self.of(one, pairs) for one in value]
        if not isinstance(value, torch.Tensor):
            return value
        if value.device != self._device:
            raise InvalidArgumentError(
                f"{self._action}: tensors of two devices in one call, {self._device} and {value.device}"
            )
        if value.layout != torch.strided:
            raise UnsupportedError(f"{self._action}: a sparse tensor on {self._device}; pass tensor.to_dense()")
        twin = twin_of(value, torch.preserve_format)
        pairs.append((twin, value))
        return twin


def exchange(
    name: str,
    device: torch.device,
    arguments: Sequence[Any],
    on_host: Callable[..., dist.Work],
    options: dict[str, Any],
    refused: Callable[[str], None],
) -> dist.Work:
    """A process group's method `name`, called with tensors on `device`; `on_host`: it, for the CPU's tensors.
    `refused`: called with the name if it does not come so far."""
    twins = _Twins(name, device)
    first: list[Pair] = []
    others: list[Pair] = []
    try:
        current_stream(device, name)  # Refused while it is captured, even if nothing is to be sent.
        hosts = [twins.of(arguments[0], first), *(twins.of(argument, others) for argument in arguments[1:])]
        to_host([*(first if name in _BOTH_WAYS | _READ_ONLY else []), *others], name)
    except BaseException:
        refused(name)
        raise
    work = on_host(*hosts, **options)
    return StagedWork(work, device, [] if name in _READ_ONLY else first)


class StagedWork(dist.Work):
    """An exchange of Gyre's, and the copies of its results to the device. Thread-safe."""

    def __init__(self, work: dist.Work, device: torch.device, results: list[Pair]) -> None:
        super().__init__()
        self._work = work
        self._device = device
        self._landing = Landing(results)
        self._outputs = [tensor for _, tensor in results]
        self._lock = threading.Lock()
        self._future: Any = None

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        self._work.wait(timeout)
        self._landing.land()
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """The results are on their way at the latest when wait() returns."""
        return bool(self._work.is_completed())

    def is_success(self) -> bool:
        return bool(self._work.is_success())

    def exception(self) -> Any:
        return self._work.exception()

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._outputs

    def source_rank(self) -> int:
        rank: int = self._work.source_rank()
        return rank

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A future for the list of output tensors, which knows their device: who waits for it gets them in order."""
        with self._lock:
            if self._future is not None:
                return self._future
            trigger: Any = torch.futures.Future(devices=[self._device])
            # torch runs it under a stream of its own, and records where this stream stands when it returns.
            self._future = trigger.then(self._resolve)
            future = self._future
        self._work.get_future().add_done_callback(lambda _: trigger.set_result(None))
        return future

    def _resolve(self, _: Any) -> list[torch.Tensor]:
        self.wait()
        return self._outputs
