"""Callbacks with the arguments of Keras 2.0 to 2.2, and TensorBoard's curves where TensorBoard is not installed."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

from gyre._keras_2.report import report

_TENSOR_BOARD = (
    "log_dir",
    "histogram_freq",
    "batch_size",
    "write_graph",
    "write_grads",
    "write_images",
    "embeddings_freq",
    "embeddings_layer_names",
    "embeddings_metadata",
    "embeddings_data",
    "update_freq",
)
_GONE_OF_TENSOR_BOARD = ("batch_size", "write_grads", "embeddings_layer_names", "embeddings_data")


def patch_classes(keras: Any) -> None:
    """Of Keras, for all of its names."""
    _patch_checkpoints(keras.callbacks.ModelCheckpoint)
    _patch_tensor_board(keras.callbacks.TensorBoard)


def _patch_checkpoints(kind: Any) -> None:
    inherited, end_epoch = kind.__init__, kind.on_epoch_end

    @functools.wraps(inherited)
    def initialize(
        self: Any,
        filepath: Any,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        period: int | str = 1,
        **options: Any,
    ) -> None:
        if isinstance(period, str):  # Keras 3's save_freq, which is at this place.
            options["save_freq"], period = period, 1
        if period != 1:
            report("ModelCheckpoint(period=)", "files are written every so many epochs, as in Keras 2")
        accepted = "a.weights.h5" if save_weights_only else "a.h5"
        inherited(self, accepted, monitor, verbose, save_best_only, save_weights_only, mode, **options)
        self.filepath = str(filepath)
        self.period = period
        self.epochs_since_last_save = 0

    @functools.wraps(end_epoch)
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> None:
        self.epochs_since_last_save += 1
        if self.epochs_since_last_save >= self.period:
            self.epochs_since_last_save = 0
            end_epoch(self, epoch, logs)

    kind.__init__, kind.on_epoch_end = initialize, on_epoch_end


def _patch_tensor_board(kind: Any) -> None:
    inherited = kind.__init__

    @functools.wraps(inherited)
    def initialize(self: Any, *arguments: Any, **options: Any) -> None:
        given = {**dict(zip(_TENSOR_BOARD, arguments, strict=False)), **options}
        for name in _GONE_OF_TENSOR_BOARD:
            if given.pop(name, None) not in (None, False):
                report(f"TensorBoard({name}=)", "has no effect")
        inherited(self, **given)

    kind.__init__ = initialize


def add_scalar_summaries(summary: Any) -> None:
    """Of tf.summary. TensorFlow no longer brings TensorBoard, without which its scalar(), and so Keras's callback,
    fails. TensorFlow itself can write the files."""
    if importlib.util.find_spec("tensorboard") is not None:
        return

    def scalar(name: str, data: Any, step: Any = None, description: str | None = None) -> Any:
        report("TensorBoard()", "is not installed here; files with the curves are written without it")
        tensorflow = importlib.import_module("tensorflow")
        kind = tensorflow.compat.v1.SummaryMetadata
        metadata = kind(summary_description=description, plugin_data=kind.PluginData(plugin_name="scalars"))
        return summary.write(name, tensorflow.cast(data, tensorflow.float32), step=step, metadata=metadata)

    summary.scalar = scalar
