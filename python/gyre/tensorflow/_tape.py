"""tf.GradientTape whose gradient() is reduced over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from gyre._job.compression import Compression, Compressor, wire_format_of
from gyre._job.gradient_exchange import NO_GROUP, ExchangeOptions, GradientExchange, Source
from gyre._job.process_sets import ProcessSet, global_process_set, runtime_of
from gyre._operations import ReduceOperation, Reduction
from gyre._runtime import Runtime
from gyre._tensorflow import gradients
from gyre._tensorflow.adaptive import adasum
from gyre._tensorflow.sparse import reduce_sparse
from gyre.errors import InvalidArgumentError

# Of a runtime, by the options of its tapes: a script makes a tape in every step, and they share the plans.
_EXCHANGES = "gyre.tensorflow.tapes"


class _DistributedTape:
    """What DistributedGradientTape adds to a tape's class."""

    _gyre_options: dict[str, Any]
    _local_sources: dict[int, Any]

    # AutoGraph would trace Gyre's own functions too.
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, **options: Any) -> Any:
        """As tf.GradientTape.gradient(), reduced over the ranks. Collective."""
        inherited: Any = super()
        own = inherited.gradient(target, sources, output_gradients, **options)
        return self._reduce(sources, own)

    def register_local_source(self, source: Any) -> None:
        """The gradient of `source` stays on this rank, divided by the number of ranks unless scale_local_gradients is
        False."""
        self._local_sources[_identity(source)] = source

    def _reduce(self, sources: Any, own: Any) -> Any:
        options = self._gyre_options
        if not options["process_set"].included():
            return own
        runtime = runtime_of(options["process_set"], "DistributedGradientTape")
        if runtime.size == 1:
            return own
        flat, names = tf.nest.flatten(own), tf.nest.flatten(sources)
        reduced = [
            self._kept(gradient, runtime.size) if _identity(source) in self._local_sources else gradient
            for gradient, source in zip(flat, names, strict=True)
        ]
        shared = [index for index, source in enumerate(names) if _identity(source) not in self._local_sources]
        paths = [_path(index, names[index]) for index in shared]
        for index, result in zip(shared, _exchanged(runtime, [flat[i] for i in shared], paths, options), strict=True):
            reduced[index] = result
        return tf.nest.pack_sequence_as(own, reduced)

    def _kept(self, gradient: Any, size: int) -> Any:
        if gradient is None or not self._gyre_options["scale_local_gradients"]:
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values / size, gradient.indices, gradient.dense_shape)
        return gradient / size


def _identity(source: Any) -> int:
    """Of the tf.Variable where Keras has wrapped one."""
    return id(getattr(source, "value", source)) if isinstance(source, keras.Variable) else id(source)


def _path(index: int, source: Any) -> str:
    """As the user knows it."""
    if isinstance(source, keras.Variable):
        return str(source.path)
    return str(source.name) if isinstance(source, tf.Variable) else f"source {index}"


def _exchanged(runtime: Runtime, tensors: Sequence[Any], paths: Sequence[str], options: dict[str, Any]) -> list[Any]:
    """`tensors`: the gradients, or None, of the sources of these paths."""
    as_dense = options["sparse_as_dense"]
    results = [tf.convert_to_tensor(one) if as_dense and one is not None else one for one in tensors]
    there = [index for index, one in enumerate(results) if one is not None]
    sparse = [index for index in there if isinstance(results[index], tf.IndexedSlices)]
    dense = [index for index in there if index not in set(sparse)]
    reduction: Reduction = options["reduction"]
    compression: type[Compressor] = options["compression"]
    # Backward produces the last sources' gradients first.
    order = dense[::-1]
    compressed = [compression.compress(results[index]) for index in order]
    values = [value for value, _ in compressed]
    exchange = _exchange_of(runtime, ExchangeOptions(reduction, options["wire"]))
    sources = [Source(path, one is not None) for path, one in zip(paths, results, strict=True)]
    if reduction.operation == ReduceOperation.ADASUM:
        exchange.agree_on(sources)
        reduced = adasum(runtime, values, reduction, None) if values else []
    else:
        numbers = _group_of(options["groups"], len(there))
        group_of = {index: numbers[place] for place, index in enumerate(there) if place in numbers}
        described = [
            gradients.describe(str(index), value, group_of.get(index, NO_GROUP))
            for index, value in zip(order, values, strict=True)
        ]
        reduced = gradients.reduce(exchange.lay_out(described, sources), values)
    for index, result, (_, context) in zip(order, reduced, compressed, strict=True):
        results[index] = compression.decompress(result, context)
    for index in sparse:
        results[index] = reduce_sparse(runtime, results[index], reduction)
    return results


def _group_of(groups: int | None, count: int) -> dict[int, int]:
    parts = min(groups or 0, count)
    return {index: index * parts // count for index in range(count)} if parts else {}


def _exchange_of(runtime: Runtime, options: ExchangeOptions) -> GradientExchange:
    kept = runtime.kept_by_interfaces.setdefault(_EXCHANGES, {})
    if options not in kept:
        kept[options] = GradientExchange(runtime, options, "tape")
    exchange: GradientExchange = kept[options]
    return exchange


def DistributedGradientTape(  # noqa: N802 - Horovod's name
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOperation = ReduceOperation.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """`gradtape` itself, under a class of the same name whose gradient() is reduced over all ranks.

    op: Average, Sum, or Adasum. For the other arguments see gyre.keras.DistributedOptimizer; `groups` is a number of
    groups. Gradients are matched between ranks by their place in `sources`; those that are None
    on all ranks are left out, and MismatchError names one that is None on some.
    """
    del device_dense, device_sparse
    if op not in (ReduceOperation.AVERAGE, ReduceOperation.SUM, ReduceOperation.ADASUM):
        raise InvalidArgumentError(f"DistributedGradientTape works with op=Average, Sum or Adasum, not {op!r}")
    if gradient_predivide_factor != 1.0 and op != ReduceOperation.AVERAGE:
        raise InvalidArgumentError("gradient_predivide_factor can be used with op=Average only")
    if gradient_predivide_factor <= 0.0:
        raise InvalidArgumentError(f"gradient_predivide_factor must be positive, not {gradient_predivide_factor}")
    if groups is not None and not isinstance(groups, int):
        raise InvalidArgumentError("groups of a DistributedGradientTape must be a number of groups")
    if isinstance(gradtape, _DistributedTape):
        raise InvalidArgumentError("the tape is already a DistributedGradientTape")
    base = type(gradtape)
    wire = wire_format_of(compression)
    gradtape.__class__ = type(base.__name__, (_DistributedTape, base), {"__module__": base.__module__})
    gradtape._local_sources = {}
    gradtape._gyre_options = {
        "compression": Compression.none if wire is not None else compression,
        "wire": wire or "native",
        "sparse_as_dense": sparse_as_dense,
        "reduction": Reduction(op, 1.0 / gradient_predivide_factor, gradient_predivide_factor),
        "groups": groups if groups is not None else num_groups,
        "process_set": process_set,
        "scale_local_gradients": scale_local_gradients,
    }
    return gradtape


def PartialDistributedGradientTape(  # noqa: N802 - Horovod's name
    gradtape: Any, *arguments: Any, local_layers: Any = None, **options: Any
) -> Any:
    """DistributedGradientTape(gradtape, …), with the variables of `local_layers` (a layer or several, built) as local
    sources."""
    tape = DistributedGradientTape(gradtape, *arguments, **options)
    layers = [local_layers] if isinstance(local_layers, keras.layers.Layer) else list(local_layers or ())
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer) or not layer.built:
            raise InvalidArgumentError("local_layers must be Keras layers that are built")
        for variable in layer.trainable_variables:
            tape.register_local_source(variable)
    return tape
