"""Where rank 0's training steps spend their time outside the exchange, for `gyre explain`.

Only rank 0 of a job under `gyre explain` measures; torch is hooked nowhere else. The record is written when the process
ends, as one JSON object next to the engine's report: docs/guide/explain.md has its keys.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SUFFIX = ".steps"


@dataclass
class Bucket:
    """One of DistributedDataParallel's buckets, over all steps; times in microseconds."""

    bytes: int
    in_place: bool  # The ranks of a host reduce it in place.
    on_device: bool = False  # A device's own library exchanges it.
    count: int = 0
    issued_us: float = 0  # Since backward began.
    exchange_us: float = 0  # From then until the sum was complete.


@dataclass
class Delegated:
    """One kind of operation that a device's own library carries out."""

    row: str  # Of the timeline.
    operation: str
    count: int = 0
    bytes: int = 0  # Of this rank's tensors.
    busy_us: float = 0  # From the call, or the end of the call before it, until the device had finished.


@dataclass
class Totals:
    """Sums over steps, in microseconds. A step is one step() of an optimizer."""

    steps: int = 0
    wall_us: float = 0
    data_us: float = 0
    forward_us: float = 0
    backward_us: float = 0
    optimizer_us: float = 0
    evaluation_us: float = 0  # Forward passes without gradients.
    waited_us: float = 0  # For DistributedDataParallel's buckets, after the last of them was issued.
    groups: dict[str, list[Bucket]] = field(default_factory=dict)
    delegated: list[Delegated] = field(default_factory=list)


def _now_us() -> float:
    return time.perf_counter_ns() / 1000


class StepRecord:
    """Hooks torch and adds up times. Called by the training thread, except for the ends of buckets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._totals = Totals()
        self._forward_depth = 0
        self._forward_start = 0.0
        self._backward_start: float | None = None
        self._position = 0  # Of the next bucket in this backward.
        self._last_issued = self._last_done = 0.0
        self._optimizer_start: float | None = None
        self._step_ended: float | None = None

    # The parts of a step.

    def hook(self) -> None:
        import torch  # noqa: PLC0415  A program without it has no steps.
        from torch.nn.modules import module  # noqa: PLC0415
        from torch.optim import optimizer  # noqa: PLC0415

        module.register_module_forward_pre_hook(lambda *_: self._begin_forward())
        module.register_module_forward_hook(lambda *_: self._end_forward(torch.is_grad_enabled()), always_call=True)
        optimizer.register_optimizer_step_pre_hook(lambda *_: self._begin_optimizer())
        optimizer.register_optimizer_step_post_hook(lambda *_: self._end_optimizer())
        torch.autograd.backward = self._timed_backward(torch.autograd.backward)
        loader = torch.utils.data.DataLoader
        loader.__iter__ = self._timed_loading(loader.__iter__)  # type: ignore[method-assign, assignment]
        atexit.register(self._write)

    def _begin_forward(self) -> None:
        if self._forward_depth == 0:
            self._forward_start = _now_us()
        self._forward_depth += 1

    def _end_forward(self, with_gradients: bool) -> None:
        self._forward_depth -= 1
        if self._forward_depth != 0 or self._backward_start is not None:  # Otherwise it is recomputed by a checkpoint.
            return
        spent = _now_us() - self._forward_start
        if with_gradients:
            self._totals.forward_us += spent
        else:
            self._totals.evaluation_us += spent

    def _timed_backward(self, backward: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(backward)
        def timed(*arguments: Any, **options: Any) -> None:
            outer, self._backward_start = self._backward_start, _now_us()
            start, self._position = self._backward_start, 0
            try:
                backward(*arguments, **options)
            finally:
                self._backward_start = outer
                if outer is None:
                    self._totals.backward_us += _now_us() - start
                    with self._lock:
                        self._totals.waited_us += max(0.0, self._last_done - self._last_issued)
                        self._last_issued = self._last_done = 0.0

        return timed

    def _timed_loading(self, begin: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
        record = self

        class Batches:
            def __init__(self, batches: Iterator[Any]) -> None:
                self._batches = batches

            def __iter__(self) -> Batches:
                return self

            def __next__(self) -> Any:
                start = _now_us()
                try:
                    return next(self._batches)
                finally:
                    record._totals.data_us += _now_us() - start

            def __len__(self) -> int:
                return len(self._batches)  # type: ignore[arg-type]

            def __getattr__(self, name: str) -> Any:
                return getattr(self._batches, name)

        return lambda loader: Batches(begin(loader))

    def _begin_optimizer(self) -> None:
        # If an optimizer's step() is called within another one's, which waits for the exchange, the inner one counts.
        self._optimizer_start = _now_us()

    def _end_optimizer(self) -> None:
        now = _now_us()
        if self._optimizer_start is None:
            return
        self._totals.optimizer_us += now - self._optimizer_start
        self._optimizer_start = None
        if self._step_ended is None:
            # The first step creates things that later steps reuse, so it is left out.
            with self._lock:
                self._totals = Totals()
        else:
            self._totals.steps += 1
            self._totals.wall_us += now - self._step_ended
        self._step_ended = now

    # DistributedDataParallel.

    def bucket(self, group: str, size_bytes: int, in_place: bool, on_device: bool) -> Callable[[], None]:
        """A bucket is issued now; returns the function to call when its sum is complete."""
        issued = _now_us()
        since = issued - self._backward_start if self._backward_start is not None else 0.0
        with self._lock:
            buckets = self._totals.groups.setdefault(group, [])
            position, self._position = self._position, self._position + 1
            while len(buckets) <= position:
                buckets.append(Bucket(size_bytes, in_place))
            if buckets[position].bytes != size_bytes:  # DDP has rebuilt its buckets.
                buckets[position:] = [Bucket(size_bytes, in_place)]
            bucket = buckets[position]
            bucket.in_place, bucket.on_device = in_place, on_device
            if not on_device:  # Otherwise nothing waits for it on the host.
                self._last_issued = issued

        def done() -> None:
            with self._lock:
                bucket.count += 1
                bucket.issued_us += since
                bucket.exchange_us += _now_us() - issued
                if not on_device:
                    self._last_done = _now_us()

        return done

    def delegated(self, row: str, operation: str, size_bytes: int, busy_us: float) -> None:
        """A device's own library has finished a call."""
        with self._lock:
            of_kind = [one for one in self._totals.delegated if (one.row, one.operation) == (row, operation)]
            if not of_kind:
                of_kind = [Delegated(row, operation)]
                self._totals.delegated += of_kind
            of_kind[0].count += 1
            of_kind[0].bytes += size_bytes
            of_kind[0].busy_us += busy_us

    def _write(self) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            totals = asdict(copy.deepcopy(self._totals))
        temporary = self._path.with_suffix(".writing")
        with contextlib.suppress(OSError):  # The engine gives the same message for its own report.
            temporary.write_text(json.dumps(totals), encoding="utf-8")
            temporary.replace(self._path)


class _Current:
    record: StepRecord | None = None


def start_from_environment(rank: int) -> None:
    """Begins to measure if GYRE_EXPLAIN_FILE is set, once, on rank 0 of a program that uses torch."""
    path = os.environ.get("GYRE_EXPLAIN_FILE", "")
    if _Current.record is None and path and rank == 0 and "torch" in sys.modules:
        _Current.record = StepRecord(Path(path + SUFFIX))
        _Current.record.hook()


def is_kept() -> bool:
    """Whether this process measures."""
    return _Current.record is not None


def bucket(group: str, size_bytes: int, in_place: bool, *, on_device: bool = False) -> Callable[[], None] | None:
    """StepRecord.bucket() if this process measures."""
    if _Current.record is None:
        return None
    return _Current.record.bucket(group, size_bytes, in_place, on_device)


def delegated(row: str, operation: str, size_bytes: int, busy_us: float) -> None:
    """StepRecord.delegated() if this process measures."""
    if _Current.record is not None:
        _Current.record.delegated(row, operation, size_bytes, busy_us)
