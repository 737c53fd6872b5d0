"""This process as a worker of its job: the group of workers and servers, or gyre.torch's where there are no servers."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

import gyre.torch as hvd
from gyre import _runtime
from gyre.core import _core
from gyre.errors import Error, ShutDownError, UnsupportedError
from gyre.params._memory import shared


class _Worker:
    """The worker that init() made, if the job has servers."""

    def __init__(self) -> None:
        self.core: _core.ParameterWorker | None = None
        self.has_exit_hook = False
        self.held: list[torch.Tensor] = []  # The optimizer's parameters, if the servers hold them …
        self.begin: Callable[[], None] | None = None  # … and what makes them common.


_worker = _Worker()


def init() -> None:
    """Makes this process a worker of the job that `gyre run` has started; returns when all workers and servers have
    joined. In a job without `--servers` it is gyre.torch.init(). A second call does nothing. Errors: as
    gyre.torch.init()."""
    if _worker.core is not None:
        return
    if os.environ.get("GYRE_SERVERS", "0") == "0":
        hvd.init()
        return
    _runtime.refuse_second_import()
    _worker.core = _core.join_parameter_servers()
    if not _worker.has_exit_hook:
        atexit.register(_leave_at_exit, os.getpid())
        _worker.has_exit_hook = True


def worker_or_none() -> _core.ParameterWorker | None:
    """None in a job without servers. ShutDownError before init()."""
    if _worker.core is None and not hvd.is_initialized():
        raise ShutDownError("Gyre has not been initialized in this process; call gyre.params.init() first.")
    return _worker.core


def held_parameters(parameters: list[torch.Tensor], begin: Callable[[], None]) -> None:
    """The servers hold these parameters of the optimizer; `begin` makes them common, once."""
    _worker.held, _worker.begin = parameters, begin


def _begin() -> None:
    """Whichever call is a worker's first, the parameters become common in it: it may have no batches to step with."""
    if _worker.core is not None and _worker.begin is not None:
        _worker.begin()


def timeline_or_none() -> _core.Timeline | None:
    """The timeline of this worker, if there are servers and `gyre run --timeline` asked for one."""
    return None if _worker.core is None else _worker.core.timeline


def is_initialized() -> bool:
    """Whether init() has been called, and shutdown() has not."""
    return _worker.core is not None or hvd.is_initialized()


def shutdown() -> None:
    """Leaves the job: this worker has no more data, and the others go on without waiting for it. Called at the end of
    the program if you do not."""
    core, _worker.core, _worker.held, _worker.begin = _worker.core, None, [], None
    if core is not None:
        core.leave()
    else:
        hvd.shutdown()


def rank() -> int:
    """This worker's number, from 0."""
    core = worker_or_none()
    return hvd.rank() if core is None else core.rank


def size() -> int:
    """The number of workers."""
    core = worker_or_none()
    return hvd.size() if core is None else core.size


def servers() -> int:
    """The number of parameter servers; 0 if the workers exchange through allreduce."""
    core = worker_or_none()
    return 0 if core is None else core.servers


def sum_over_workers(values: Sequence[float]) -> list[float]:
    """The sums of the workers' values in float64, added in the order of the workers. For a handful of metrics, after
    the optimizer has been made. Every worker calls it equally often, with equally many values; those that have left or
    died do not count."""
    core = worker_or_none()
    if core is not None:
        _begin()
        return core.sum(list(values))
    total = hvd.allreduce(torch.tensor(list(values), dtype=torch.float64), op=hvd.Sum)
    return [float(value) for value in total]


def broadcast_parameters(parameters: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]) -> None:
    """Worker 0's tensors (a state_dict() or named_parameters()) become everybody's, in place; the first survivor's, if
    it has died. If the servers hold these parameters, they get the values, too. Collective, after the optimizer has
    been made."""
    core = worker_or_none()
    named = dict(parameters)
    if core is None:
        hvd.broadcast_parameters(named, root_rank=0)
        return
    for name, tensor in named.items():
        if tensor.layout != torch.strided or not tensor.is_contiguous() or tensor.device.type != "cpu":
            raise UnsupportedError(f"'{name}' is not a contiguous tensor on the CPU")
        core.broadcast(shared(tensor))
    places = {tensor.data_ptr() for tensor in named.values()}
    if any(parameter.data_ptr() in places for parameter in _worker.held):
        core.begin_again()
        _begin()


def _leave_at_exit(process: int) -> None:
    core = _worker.core
    if core is None or os.getpid() != process:
        return
    _runtime.announce_end()
    try:
        words = _runtime.last_words()
        if words is not None:
            core.abort(f"rank {core.rank} (process {process}) ended with {words}")
        else:
            shutdown()
    except Error as error:
        # The interpreter is shutting down: an exception would reach nobody.
        print(f"gyre: worker {core.rank} could not leave the job in good order: {error}", file=sys.stderr)
