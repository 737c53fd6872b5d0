"""One rank of bench/tensorflow_step.py in TensorFlow, of Gyre and of MultiWorkerMirroredStrategy in one process. Needs
no torch."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # Read at the import.
import gyre.tensorflow as hvd
import tensorflow as tf
from _step_rank import FACTOR, RATE, Step, after_one_step, measured, parsed, shapes_of, write_times
from gyre._job.gradient_exchange import ExchangeOptions, GradientExchange, Layout
from gyre._operations import ReduceOperation, Reduction
from gyre._runtime import current
from gyre._tensorflow import gradients
from gyre._tensorflow.library import library

_LONGEST_SECONDS = 60

Reduce = Callable[[Sequence[Any]], Sequence[Any]]


def strategy_over(store: str, rank: int, size: int) -> Any:
    """A MultiWorkerMirroredStrategy whose workers are the ranks."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        draft = Path(f"{store}.{rank}.draft")
        draft.write_text(f"127.0.0.1:{free.getsockname()[1]}")
        draft.rename(f"{store}.{rank}")
    files = [Path(f"{store}.{other}") for other in range(size)]
    until = time.monotonic() + _LONGEST_SECONDS
    while not all(file.exists() for file in files):
        if time.monotonic() > until:
            raise SystemExit(f"the workers' addresses were not there within {_LONGEST_SECONDS} s")
        time.sleep(0.05)
    addresses = [file.read_text() for file in files]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}})
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def laid_out(tensors: Sequence[Any]) -> Layout:
    return exchange.lay_out([gradients.describe(str(index), tensor) for index, tensor in enumerate(tensors)])


def reduced_by_gyre(tensors: Sequence[Any]) -> Sequence[Any]:
    """As DistributedOptimizer and DistributedGradientTape reduce, but also on a single rank."""
    return gradients.reduce(laid_out(tensors), tensors)


def contributed_to_gyre(tensors: Sequence[Any]) -> Sequence[Any]:
    """The tensors themselves, of which what precedes the end of a step of reduced_by_gyre() makes copies."""
    gradients.contributions(
        library(), laid_out(tensors), tensors
    )  # In the graph of the function, since they are stateful.
    return tensors


def reduced_by_strategy(tensors: Sequence[Any]) -> Sequence[Any]:
    context = tf.distribute.get_replica_context()
    results: Sequence[Any] = context.all_reduce(tf.distribute.ReduceOp.MEAN, list(tensors))
    return results


def traced(
    shapes: Sequence[Sequence[int]],
    reduce: Reduce,
    expected: float,
    strategy: Any = None,
    afterwards: Callable[[], object] = lambda: None,
) -> Step:
    """A step of a tf.function that computes gradients, reduces and applies them. SystemExit if the first one does not
    make `expected` of zeros."""
    given = [tf.Variable(tf.fill(shape, float(hvd.rank() + 1))) for shape in shapes]
    variables = [tf.Variable(tf.zeros(shape)) for shape in shapes]

    def work(factor: Any) -> None:
        for variable, gradient in zip(variables, reduce([one * factor for one in given]), strict=True):
            variable.assign_sub(RATE * gradient)

    @tf.function  # type: ignore[untyped-decorator]
    def step(factor: Any) -> None:
        if strategy is None:
            work(factor)
        else:
            strategy.run(work, (factor,))

    factor = tf.constant(FACTOR)
    step(factor)
    afterwards()
    if not all(bool(tf.reduce_all(variable == expected)) for variable in variables):
        raise SystemExit("wrong answer: the gradients are not the ranks' average")
    return Step(lambda: step(factor), afterwards)


arguments = parsed()
place, count = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
peer = strategy_over(arguments.store, place, count) if arguments.store else None  # Sets TensorFlow up: first.
hvd.init()
if library() is None:
    raise SystemExit("TensorFlow cannot load Gyre's ops")
exchange = GradientExchange(current(), ExchangeOptions(Reduction(ReduceOperation.AVERAGE, 1.0, 1.0)))
sizes, own, average = shapes_of(arguments.tensors), -RATE * FACTOR * (place + 1), after_one_step(count)
steps = {"alone": traced(sizes, list, own), "gyre": traced(sizes, reduced_by_gyre, average)}
if peer is not None:
    steps["strategy alone"] = traced(sizes, list, own, peer)
    steps["strategy"] = traced(sizes, reduced_by_strategy, average, peer)
if count == 1:
    finish = laid_out([tf.zeros(size) for size in sizes]).finish
    steps["contributing"] = traced(sizes, contributed_to_gyre, own, afterwards=finish)
times = measured(
    steps,
    arguments.seconds,
    lambda: hvd.allreduce(tf.zeros([])),
    lambda value: int(hvd.broadcast(tf.constant(value), 0)),
)
write_times(arguments.result, times)
hvd.shutdown()
os._exit(0)  # The strategy's servers cannot be stopped.
