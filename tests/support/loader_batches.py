"""What gyre.keras.Batches promises, checked on the back end that Keras has in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gyre.keras as hvd
import keras
import numpy
import pytest
from gyre.errors import CallOrderError, InvalidArgumentError
from keras_models import network, samples, weights

from gyre.data import Batch, Loader, floats, write_tfrecords

COUNT = 48
BATCH = 12


def write(path: Path, count: int = COUNT, seed: int = 0) -> Path:
    inputs, targets = samples(count, seed)
    write_tfrecords(path, ({"x": x, "y": y} for x, y in zip(inputs, targets, strict=True)))
    return path


def loader_of(path: Path, batch: int = BATCH, **options: Any) -> Loader:
    return Loader(str(path), {"x": floats(8), "y": floats(3)}, batch_size=batch, seed=5, output="numpy", **options)


def pairs(batch: Batch) -> tuple[Any, Any]:
    return batch["x"], batch["y"]


def compiled(model: Any, wrap: Callable[[Any], Any] = lambda optimizer: optimizer) -> Any:
    model.compile(wrap(keras.optimizers.Adam(0.01)), keras.losses.MeanSquaredError())
    return model


def by_hand(path: Path, epochs: range, model: Any = None, first_step: int = 0) -> Any:
    """A model trained in a loop over the whole batches of a loader."""
    model = model or compiled(network())
    loader = loader_of(path, rank=0, world_size=1)
    for epoch in epochs:
        loader.set_epoch(epoch)
        for batch in loader:
            if epoch > epochs[0] or batch.step >= first_step:
                model.train_on_batch(*pairs(batch))
    return model


def check_alike(model: Any, expected: Any) -> None:
    numpy.testing.assert_allclose(weights(model), weights(expected), rtol=0, atol=1e-5)


def check_an_epoch_of_fit_is_one_of_the_loader() -> None:
    """In a rank: fit(), which shuffles by default, trains on the batches that a loop over the loader gives."""
    hvd.init()
    path = write(Path(f"numbers.{hvd.rank()}.tfrecord"))
    expected = by_hand(path, range(3))
    for built in (True, False):
        data = hvd.Batches(loader_of(path, BATCH // hvd.size()), pairs)
        assert len(data) == COUNT // BATCH
        model = network(built=built)  # With the same start: a layer's initializer is seeded when the layer is made.
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        compiled(model, hvd.DistributedOptimizer).fit(data, epochs=3, verbose=0, callbacks=callbacks)
        check_alike(model, expected)


def check_ranks_with_fewer_batches() -> None:
    """In a rank: each reads files of its own, and one has fewer batches."""
    hvd.init()
    rank = hvd.rank()
    path = write(Path(f"numbers.{rank}.tfrecord"), count=12 + 8 * rank, seed=rank)
    data = hvd.Batches(loader_of(path, 4, rank=0, world_size=1), pairs)
    held = hvd.Batches(loader_of(path, 4, rank=0, world_size=1, shuffle=False), pairs)
    model = compiled(network(seed=rank), hvd.DistributedOptimizer)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    history = model.fit(data, validation_data=held, epochs=3, verbose=0, callbacks=callbacks).history
    assert int(model.optimizer.iterations.numpy()) == 3 * 5
    rows = hvd.allgather(numpy.concatenate([weights(model), history["val_loss"]])[None])
    assert all(row.tobytes() == rows[0].tobytes() for row in rows)


def check_short_epochs(folder: Path) -> None:
    """In one process: epochs of fit() that are shorter than the loader's share one pass."""
    path = write(folder / "numbers.tfrecord")
    model = compiled(network())
    model.fit(hvd.Batches(loader_of(path), pairs), epochs=8, steps_per_epoch=COUNT // BATCH // 2, verbose=0)
    check_alike(model, by_hand(path, range(4)))


def check_states(folder: Path) -> None:
    """In one process: resuming at the end of an epoch, by Batches and by the loader, and within one."""
    path = write(folder / "numbers.tfrecord")
    for resumes_loader in (False, True):
        model, data = compiled(network()), hvd.Batches(loader_of(path), pairs)
        model.fit(data, epochs=1, verbose=0)
        assert data.state_dict()["epoch"] == 1
        assert data.state_dict()["step"] == 0
        loader = loader_of(path)
        again = hvd.Batches(loader, pairs)
        (loader if resumes_loader else again).load_state_dict(data.state_dict())
        model.fit(again, epochs=4, initial_epoch=1, verbose=0)
        check_alike(model, by_hand(path, range(4)))

    # The samples are those of the run that was not interrupted.
    loader = loader_of(path)
    for batch in loader:
        if batch.step == 1:
            break
    data = hvd.Batches(loader_of(path), pairs)
    data.load_state_dict(loader.state_dict())
    model = compiled(network())
    model.fit(data, epochs=1, verbose=0)
    expected = by_hand(path, range(1), first_step=2)
    inside = loader_of(path)
    inside.set_epoch(1)
    for batch in inside:
        if batch.step < 2:
            expected.train_on_batch(*pairs(batch))
    check_alike(model, expected)


def check_passes_that_are_left(folder: Path) -> None:
    """In one process: the next epoch comes after a pass that is left early."""
    path = write(folder / "numbers.tfrecord")

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.model.stop_training = True

    data, model = hvd.Batches(loader_of(path), pairs), compiled(network())
    model.fit(data, verbose=0, callbacks=[Stop()])
    model.fit(data, verbose=0)
    expected = compiled(network())
    expected.train_on_batch(*pairs(next(iter(loader_of(path)))))
    check_alike(model, by_hand(path, range(1, 2), expected))


def check_set_epoch_and_looks(folder: Path) -> None:
    """In one process: set_epoch() counts, and looking at a batch changes nothing."""
    path = write(folder / "numbers.tfrecord")
    loader = loader_of(path)
    data, model = hvd.Batches(loader, pairs), compiled(network())
    data[2]
    loader.set_epoch(2)
    looks = [data[number][0].tolist() for number in (1, 0)]
    assert [x.tolist() for x, _ in data][1::-1] == looks
    loader.set_epoch(3)
    model.fit(data, verbose=0)
    check_alike(model, by_hand(path, range(3, 4)))


def check_evaluation(folder: Path) -> None:
    """In one process: with weights for the samples that count."""
    held = loader_of(write(folder / "numbers.tfrecord"), 5, shuffle=False)
    model = compiled(network())
    data = hvd.Batches(held, lambda batch: (*pairs(batch), (numpy.arange(len(batch["x"])) < batch.counted) * 1.0))
    inputs, targets = samples(COUNT)
    for _ in range(2):
        numpy.testing.assert_allclose(
            model.evaluate(data, verbose=0), model.evaluate(inputs, targets, verbose=0), rtol=1e-5
        )
    numpy.testing.assert_allclose(model.predict(data, verbose=0), model.predict(inputs, verbose=0), rtol=1e-5)


def check_misuse(folder: Path) -> None:
    """In one process."""
    path = write(folder / "few.tfrecord", count=6)
    loader = loader_of(path, 2)
    with pytest.raises(InvalidArgumentError, match=r"a gyre.data.Loader, not list"):
        hvd.Batches([1], pairs)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="make='x' is not a function"):
        hvd.Batches(loader, "x")  # type: ignore[arg-type]
    data = hvd.Batches(loader, pairs)
    with pytest.raises(IndexError, match="no batch 3: an epoch has 3"):
        data[3]
    data.workers = 0
    with pytest.raises(InvalidArgumentError, match=r"workers=4: .*threads= to the Loader"):
        data.workers = 4
    with pytest.raises(InvalidArgumentError, match="use_multiprocessing=True"):
        data.use_multiprocessing = True
    with pytest.raises(InvalidArgumentError, match="make returned a tuple of 4; Keras takes inputs"):
        hvd.Batches(loader, lambda batch: (*pairs(batch), 1, 2))[0]
    with pytest.raises(InvalidArgumentError, match="make returned None"):
        hvd.Batches(loader, lambda batch: None)[0]  # noqa: ARG005
    first = iter(data)
    next(first)
    assert len(list(data)) == 3
    with pytest.raises(CallOrderError, match="one pass at a time"):
        next(first)
    # What make() raises is seen.
    with pytest.raises(Exception, match="no_such_field"):
        compiled(network()).fit(hvd.Batches(loader, lambda batch: batch["no_such_field"]), verbose=0)
