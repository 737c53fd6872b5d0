"""Objects of one rank on all ranks: plain data with NumPy arrays in it, or anything, pickled, where that is allowed."""

from __future__ import annotations

from typing import Any

import cloudpickle
import numpy

from gyre._job import arrays, plain_data
from gyre._job.process_sets import ProcessSet, global_process_set, root_in, runtime_of
from gyre._runtime import Runtime
from gyre.errors import CorruptDataError, Error, InvalidArgumentError

# How a pickled object is represented in plain data.
_PICKLED = "\0gyre.pickled"


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    allow_pickle: bool = False,
) -> Any:
    """The root's `obj` on every rank. Plain data: None, bool, numbers, str, bytes, list, tuple, set, dict, NumPy
    arrays; nothing is pickled, so received data is never executed. InvalidArgumentError on every rank for anything
    else, unless `allow_pickle` is given on every rank: then such an object is pickled, which lets the sender run code
    on every rank. `session` is for compatibility with Horovod."""
    del session
    runtime = runtime_of(process_set, "broadcast_object")
    root = root_in(process_set, root_rank, "broadcast_object")
    return _broadcast(runtime, obj, root, name or "object", allow_pickle=allow_pickle)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    allow_pickle: bool = False,
) -> list[Any]:
    """Every rank's `obj`, in rank order; plain data, or anything with `allow_pickle`: see broadcast_object()."""
    del session
    runtime = runtime_of(process_set, "allgather_object")
    return [
        _broadcast(runtime, obj, root, f"{name or 'object'} of rank {root}", allow_pickle=allow_pickle)
        for root in range(runtime.size)
    ]


def _broadcast(runtime: Runtime, obj: Any, root: int, what: str, *, allow_pickle: bool) -> Any:
    is_root = runtime.rank == root
    # If the object cannot be sent, the other ranks must not be left waiting: a negative size tells them, and this rank
    # raises the error afterwards.
    failure: Exception | None = None
    encoded = plain_data.Encoded()
    if is_root:
        try:
            encoded = _encoded(obj, what, allow_pickle=allow_pickle)
        except Exception as error:
            failure = error
    size = numpy.array(-1 if failure is not None else len(encoded.text))
    arrays.broadcast_arrays(runtime, [size], root)
    if failure is not None:
        raise failure
    if size < 0:
        raise InvalidArgumentError(f"{what}: rank {root} cannot send it; its own message says why")
    if size > plain_data.MAX_TEXT_BYTES:
        raise CorruptDataError(f"{what}: rank {root} announced {size} bytes of description")
    text = numpy.frombuffer(bytearray(encoded.text), numpy.uint8) if is_root else numpy.empty(int(size), numpy.uint8)
    arrays.broadcast_arrays(runtime, [text], root)
    value, memory = (obj, encoded.tensors) if is_root else plain_data.decode(text.tobytes())
    arrays.broadcast_arrays(runtime, memory, root)
    return value if is_root else _unpickled(value, what, allow_pickle=allow_pickle)


def _encoded(obj: Any, what: str, *, allow_pickle: bool) -> plain_data.Encoded:
    try:
        return plain_data.encode(obj, what)
    except Error:
        if not allow_pickle:
            raise
    return plain_data.encode((_PICKLED, numpy.frombuffer(cloudpickle.dumps(obj), numpy.uint8)), what)


def _unpickled(value: Any, what: str, *, allow_pickle: bool) -> Any:
    if not (isinstance(value, tuple) and len(value) == 2 and value[0] == _PICKLED):
        return value
    if not allow_pickle:
        raise InvalidArgumentError(
            f"{what}: the object that came is pickled, and this rank has not allowed that; pass allow_pickle=True on "
            "every rank if you trust all of them"
        )
    return cloudpickle.loads(value[1].tobytes())
