"""What the exchange needs to know of the framework that Keras computes with: TensorFlow's or torch's tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import keras

from gyre._job.gradient_exchange import Gradient, Layout
from gyre._job.process_sets import ProcessSet
from gyre._operations import Reduction
from gyre._runtime import Runtime
from gyre.errors import UnsupportedError


class BackEnd(Protocol):
    """Operations on gradients. In a tf.function they are traced."""

    def check_program(self) -> None:
        """UnsupportedError where the program has set up what an exchange cannot work under."""

    def describe(self, name: str, tensor: Any, group: int) -> Gradient:
        """For GradientExchange.lay_out()."""

    def reduce(self, layout: Layout, tensors: Sequence[Any]) -> list[Any]:
        """One step: the reduced tensors."""

    def is_sparse(self, tensor: Any) -> bool:
        """Whether only some of its rows are there."""

    def to_dense(self, tensor: Any) -> Any:
        """The tensor itself if it is dense."""

    def reduce_sparse(self, runtime: Runtime, tensor: Any, reduction: Reduction) -> Any:
        """The rows of all ranks."""

    def multiply(self, tensor: Any, factor: float) -> Any:
        """A sparse tensor stays sparse."""

    def zeros_like(self, variable: Any) -> Any:
        """A gradient of the variable."""

    def sum_over_ranks(self, process_set: ProcessSet, tensor: Any) -> Any:
        """With the gradient of the sum of all ranks' losses."""

    def conditionally(self, condition: Any, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Calls one of them, for its effects."""

    def outside_of_graphs(self) -> AbstractContextManager[None]:
        """Where variables have values, while a graph is traced."""


def back_end() -> BackEnd:
    """Of this process's Keras. UnsupportedError if Gyre has none for it."""
    name = keras.backend.backend()
    if name == "tensorflow":
        from gyre.keras._back_end_tensorflow import TensorFlowBackEnd  # noqa: PLC0415  Imports TensorFlow.

        return TensorFlowBackEnd()
    if name == "torch":
        from gyre.keras._back_end_torch import TorchBackEnd  # noqa: PLC0415  Imports torch.

        return TorchBackEnd()
    raise UnsupportedError(
        f"gyre.keras works with Keras's back ends tensorflow and torch, not with {name!r}; set KERAS_BACKEND, or "
        '"backend" in ~/.keras/keras.json'
    )
