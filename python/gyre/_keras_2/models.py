"""Models with the methods and arguments of Keras 2."""

from __future__ import annotations

import functools
import importlib
import random
from collections.abc import Iterator
from typing import Any

from gyre._keras_2.report import report

_QUEUES = ("max_queue_size", "max_q_size", "workers", "nb_worker", "use_multiprocessing", "pickle_safe")
_GONE_OF_COMPILE = ("experimental_run_tf_function", "sample_weight_mode", "target_tensors")

# The positional arguments of the methods for generators, after the generator.
_AFTER = ("max_queue_size", "workers", "use_multiprocessing")
_FIT = (
    *("steps_per_epoch", "epochs", "verbose", "callbacks", "validation_data", "validation_steps", "class_weight"),
    *(*_AFTER, "shuffle", "initial_epoch"),
)
_STEPS = ("steps", *_AFTER, "verbose")


def patch_classes(keras: Any) -> None:
    """Of Keras, for all of its names."""
    model = keras.Model
    rounds = _rounds(keras)
    model.compile = _compile(model.compile)
    for name in ("fit", "evaluate", "predict"):
        setattr(model, name, _without_queues(getattr(model, name)))

    def fit_generator(self: Any, generator: Any, *arguments: Any, **options: Any) -> Any:
        report("fit_generator()", "fit()")
        given = _named(_FIT, arguments, options)
        data = generator
        if given.get("steps_per_epoch") is not None:
            data = rounds(generator, shuffle=given.pop("shuffle", True))
        if given.get("validation_steps") is not None:
            given["validation_data"] = rounds(given.get("validation_data"), shuffle=False)
        weights = None if isinstance(data, keras.utils.PyDataset) else given.pop("class_weight", None)
        return self.fit(data if weights is None else _weighted(data, weights), **given)

    def evaluate_generator(self: Any, generator: Any, *arguments: Any, **options: Any) -> Any:
        report("evaluate_generator()", "evaluate()")
        given = _named(_STEPS, arguments, options)
        return self.evaluate(_counted(rounds, generator, given), **{"verbose": 0, **given})

    def predict_generator(self: Any, generator: Any, *arguments: Any, **options: Any) -> Any:
        report("predict_generator()", "predict()")
        given = _named(_STEPS, arguments, options)
        return self.predict(_counted(rounds, generator, given), **{"verbose": 0, **given})

    model.fit_generator = fit_generator
    model.evaluate_generator = evaluate_generator
    model.predict_generator = predict_generator


def _compile(inherited: Any) -> Any:
    @functools.wraps(inherited)
    def compile_model(self: Any, *arguments: Any, **options: Any) -> Any:
        for name in _GONE_OF_COMPILE:
            if options.pop(name, None) is not None:
                report(f"compile({name}=)", "has no effect")
        return inherited(self, *arguments, **options)

    return compile_model


def _without_queues(inherited: Any) -> Any:
    @functools.wraps(inherited)
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        for name in _QUEUES:
            if options.pop(name, None) is not None:
                report(f"{name}=", "has no effect: batches are made in the thread that trains")
        return inherited(self, *arguments, **options)

    return method


def _named(names: tuple[str, ...], arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    if len(arguments) > len(names):
        raise TypeError(f"more than {len(names)} positional arguments after the generator; give them by name")
    return {**dict(zip(names, arguments, strict=False)), **options}


def _counted(rounds: Any, generator: Any, given: dict[str, Any]) -> Any:
    return generator if given.get("steps") is None else rounds(generator, shuffle=False)


def _rounds(keras: Any) -> Any:
    """A function that makes an endless data set of a Sequence, as Keras 2 did where a number of steps was given: an
    epoch goes on where the one before it ended, and a pass over the Sequence ends where it does. Others are returned
    as they are."""

    class Rounds(keras.utils.PyDataset):  # type: ignore[misc]
        """The batches of pass after pass."""

        num_batches = None

        def __init__(self, sequence: Any, *, shuffle: bool) -> None:
            super().__init__()
            self._sequence, self._shuffle = sequence, shuffle
            self._order = list(range(len(sequence)))
            self._pass = -1

        def __getitem__(self, index: int) -> Any:
            number, place = divmod(index, len(self._order))
            if number != self._pass:
                if number > self._pass >= 0:
                    self._sequence.on_epoch_end()
                self._pass = number
                if self._shuffle:
                    random.shuffle(self._order)
            return self._sequence[self._order[place]]

    def rounds(data: Any, *, shuffle: bool) -> Any:
        plain = isinstance(data, keras.utils.PyDataset) and hasattr(data, "__len__")
        # gyre.keras.Batches counts the passes over its loader itself.
        if not plain or type(data).__module__.startswith("gyre.") or len(data) == 0:
            return data
        return Rounds(data, shuffle=bool(shuffle))

    return rounds


def _weighted(generator: Any, class_weight: Any) -> Iterator[Any]:
    """Keras 3 takes class weights with a Sequence, and not with a generator."""
    utilities = importlib.import_module("keras.src.trainers.data_adapters.data_adapter_utils")
    for batch in generator:
        if len(batch) > 2:
            raise ValueError("fit_generator(): a generator of sample weights, and class_weight= besides")
        yield batch[0], batch[1], utilities.class_weight_to_sample_weights(batch[1], class_weight)
