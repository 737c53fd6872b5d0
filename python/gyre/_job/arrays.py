"""Operations on NumPy arrays: what interfaces without torch exchange.

Each waits for its result. Arrays are contiguous and of a type that the engine knows; bfloat16 ones are of ml_dtypes'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from gyre._operations import SUM, Kind, Reduction
from gyre._runtime import Runtime
from gyre.core import _core
from gyre.errors import InvalidArgumentError, MismatchError

Array = numpy.ndarray[Any, Any]

# The numbers of gyre/collectives/data_type.h, by the names that NumPy and TensorFlow give to types.
DATA_TYPE_NUMBERS = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "bfloat16": 6,
    "float32": 7,
    "float64": 8,
    "bool": 9,
}


def data_type_number(name: str, action: str) -> int:
    """InvalidArgumentError for a type that cannot be exchanged. `action` ("allreduce of 'x'") starts the message."""
    number = DATA_TYPE_NUMBERS.get(name)
    if number is None:
        raise InvalidArgumentError(
            f"{action}: tensors of type {name} cannot be exchanged (possible: {', '.join(DATA_TYPE_NUMBERS)})"
        )
    return number


def memory_of(array: Array) -> tuple[int, int]:
    """(address, bytes) of a contiguous array."""
    return array.ctypes.data, array.nbytes


def array_over(memory: _core.Memory, dtype: numpy.dtype[Any], shape: Sequence[int]) -> Array:
    """An array over the engine's memory that keeps the memory alive."""
    count = math.prod(shape)
    if count == 0:
        return numpy.empty(tuple(shape), dtype)
    return numpy.ndarray(tuple(shape), dtype, memoryview(memory))


def request(
    runtime: Runtime,
    kind: Kind,
    source: Array,
    *,
    name: str | None = None,
    target: Array | None = None,
    reduction: Reduction = SUM,
    root: int = 0,
    splits: Sequence[int] = (),
) -> _core.Request:
    """`target`: where the result goes, which may be `source`; without it the engine allocates the result. Both must
    stay alive until the operation is done. Without a name, one is made from a counter."""
    action = f"{kind.word} of '{name}'" if name is not None else kind.word
    return _core.Request(
        kind=kind,
        name=f"{kind.word}.{name}" if name is not None else f"{kind.word}.noname.{runtime.next_number(kind.word)}",
        data_type=data_type_number(source.dtype.name, action),
        shape=list(source.shape),
        input=memory_of(source),
        output=memory_of(target) if target is not None else (0, 0),
        operation=reduction.operation,
        prescale=reduction.prescale,
        postscale=reduction.postscale,
        root=root,
        splits=list(splits),
        transient=name is None,
    )


def run(runtime: Runtime, requests: Sequence[_core.Request]) -> list[_core.Handle]:
    """Their completed handles. Several start when all are submitted, and complete together."""
    core = runtime.core
    handles = [core.run_or_submit(requests[0])] if len(requests) == 1 else core.submit_group(requests)
    for handle in handles:
        handle.wait()
    return handles


def barrier(runtime: Runtime) -> None:
    """Returns when all ranks have called it."""
    name = f"barrier.noname.{runtime.next_number('barrier')}"
    run(runtime, [_core.Request(kind=Kind.BARRIER, name=name, data_type=0, shape=(), transient=True)])


def gather_bytes(runtime: Runtime, content: bytes, name: str | None = None) -> list[bytes]:
    """Every rank's `content`, in rank order."""
    own = numpy.frombuffer(content, numpy.uint8)
    lengths = numpy.array([len(content)], numpy.int64)
    requests = [
        request(runtime, Kind.ALLGATHER, lengths, name=None if name is None else f"{name}.lengths"),
        request(runtime, Kind.ALLGATHER, own, name=None if name is None else f"{name}.content"),
    ]
    results = [handle.take_result() for handle in run(runtime, requests)]
    ends = numpy.cumsum(array_over(results[0][0], lengths.dtype, results[0][1]))
    everything = array_over(results[1][0], own.dtype, results[1][1]).tobytes()
    return [everything[end - length : end] for end, length in zip(ends, numpy.diff(ends, prepend=0), strict=True)]


def broadcast_arrays(runtime: Runtime, arrays: Sequence[Array], root: int) -> None:
    """Overwrites the arrays with the root's, all in one exchange. `root` is numbered within the runtime."""
    if arrays:
        run(runtime, [request(runtime, Kind.BROADCAST, array, target=array, root=root) for array in arrays])


def check_equal(runtime: Runtime, text: str, what: str) -> None:
    """MismatchError, on every rank, if the ranks' texts, several lines of description, differ. `what` starts it."""
    texts = [content.decode() for content in gather_bytes(runtime, text.encode())]
    for rank, other in enumerate(texts):
        if other == texts[0]:
            continue
        ours, theirs = texts[0].splitlines(), other.splitlines()
        pairs = zip(ours + ["nothing"] * len(theirs), theirs + ["nothing"] * len(ours), strict=False)
        number, (first, second) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
        raise MismatchError(
            f"{what} differ between the ranks: number {number} is {first} on rank 0, {second} on {rank}"
        )
