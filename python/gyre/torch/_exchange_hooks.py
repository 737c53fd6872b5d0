"""The hooks of a gradient exchange, and which exchange a parameter's hook belongs to."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import torch

from gyre._runtime import Runtime
from gyre.torch._exchange_slot import Slot

if TYPE_CHECKING:
    from gyre.torch._exchange import GradientExchange


def retire_exchanges(runtime: Runtime, parameters: AbstractSet[int], *, but: GradientExchange | None = None) -> None:
    """Takes parameters, by their ids, from the exchange that has exchanged their gradients so far."""
    # An unused exchange stays alive while something refers to it (a traceback, a notebook's history), on some ranks
    # only: it must not wait for the others.
    for exchange in runtime.exchanges():
        if exchange is not but:
            exchange.retire_if_it_has(parameters)


def hook_of(reference: weakref.ref[GradientExchange], slot: Slot) -> Callable[[torch.Tensor], None]:
    """The parameter must not keep the exchange alive."""

    def on_gradient(parameter: torch.Tensor) -> None:  # noqa: ARG001
        exchange = reference()
        if exchange is not None:
            with exchange.lock:
                exchange.gradient_arrived(slot)

    return on_gradient


def remove_hooks(hooks: dict[int, torch.utils.hooks.RemovableHandle]) -> None:
    for hook in hooks.values():
        hook.remove()
