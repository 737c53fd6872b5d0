"""Whatever is made of a gradient and kept across zero_grad(set_to_none=True) keeps its values, as in plain torch."""

from collections.abc import Callable

import gyre.torch as hvd
import numpy as np
import pytest
import torch
from checks import each, run_each
from gyre.torch import _exchange_slot
from torch import nn

from gyre import _torch_private

# By name: what is kept, and how its values are read.
SHARERS: dict[str, Callable[[torch.Tensor], object]] = {
    "the gradient": lambda gradient: gradient,
    "detach": torch.Tensor.detach,
    "data": lambda gradient: gradient.data,
    "view": lambda gradient: gradient.view(-1),
    "slice": lambda gradient: gradient[:, 1:],
    "transpose": torch.Tensor.t,
    "numpy": torch.Tensor.numpy,
    "numpy view": lambda gradient: gradient.detach().numpy()[1:].reshape(-1),
    "memoryview": lambda gradient: memoryview(gradient.numpy()),
    "torch.from_dlpack": torch.from_dlpack,
    "numpy.from_dlpack": np.from_dlpack,
    "storage": torch.Tensor.untyped_storage,
    "view as integers": lambda gradient: gradient.view(torch.int32),
    "function": lambda gradient: lambda: gradient,
    "graph": lambda gradient: (gradient * torch.ones_like(gradient, requires_grad=True)).sum(),
}


def values_of(sharer: object) -> list[object]:
    if callable(sharer):
        sharer = sharer()
    if isinstance(sharer, torch.Tensor) and sharer.grad_fn is not None:
        (factor,) = [
            node.variable for node, _ in sharer.grad_fn.next_functions[0][0].next_functions if node is not None
        ]
        return torch.autograd.grad(sharer, factor, retain_graph=True)[0].flatten().tolist()
    if isinstance(sharer, torch.Tensor):
        return sharer.flatten().tolist()
    if isinstance(sharer, memoryview):
        sharer = np.asarray(sharer)
    return list(sharer.flatten()) if isinstance(sharer, np.ndarray) else list(sharer)  # type: ignore[call-overload]


def kept_sharers_keep_their_values() -> None:
    """Parameters of all sizes, so that some share a page of the arena with others, and each is shared in every way."""
    rank = hvd.rank()
    shapes = [(3, 4), (2, 2), (70, 70), (5, 3), (64, 64)]
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0))
    kept: list[tuple[str, int, object, list[object]]] = []
    for step, (name, share) in enumerate([*SHARERS.items(), *SHARERS.items()]):
        optimizer.zero_grad()
        sum((parameter * (10 * step + index + rank)).sum() for index, parameter in enumerate(parameters)).backward()
        optimizer.synchronize()
        for index, parameter in enumerate(parameters):
            mean = 10 * step + index + (hvd.size() - 1) / 2
            assert torch.equal(parameter.grad, torch.full_like(parameter, mean)), (step, index)
            if index != 1:
                sharer = share(parameter.grad)
                kept.append((name, index, sharer, values_of(sharer)))
                del sharer
        with optimizer.skip_synchronize():
            optimizer.step()
        for kind, index, sharer, values in kept:
            assert values_of(sharer) == values, f"{kind} of parameter {index} changed in step {step}"


def moved_gradients_are_exchanged() -> None:
    """Memory of a gradient that the user has put elsewhere is not what the engine reduces."""
    parameter = nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0))
    for step in range(4):
        (parameter * (step + hvd.rank())).sum().backward()
        optimizer.step()
        assert torch.equal(parameter.grad, torch.full((3,), step + (hvd.size() - 1) / 2)), step
        view = parameter.grad.view(-1)
        parameter.grad.data = torch.zeros(3)
        assert view[0] == step + (hvd.size() - 1) / 2
        optimizer.zero_grad(set_to_none=step < 2)


def unshared_gradients_stay_in_place() -> None:
    """Nothing is copied, or laid out anew, for a gradient that nobody has kept."""
    parameter = nn.Parameter(torch.zeros(3, 4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0))
    addresses = []
    for _ in range(4):
        optimizer.zero_grad()
        parameter.sum().backward()
        optimizer.step()
        for share in SHARERS.values():
            share(parameter.grad)
        addresses.append(parameter.grad.data_ptr())
    assert len(set(addresses)) == 1


def without_the_private_names() -> None:
    """The last one: they are gone afterwards. Every gradient is copied then, and the results are the same."""
    del torch._C._storage_Use_Count
    with pytest.warns(UserWarning, match="copies each step's gradients once more"):
        counts = _torch_private.reference_counts()
    _exchange_slot.tensor_references, _exchange_slot.storage_references = counts
    kept_sharers_keep_their_values()


EVERYTHING = [
    kept_sharers_keep_their_values,
    moved_gradients_are_exchanged,
    unshared_gradients_stay_in_place,
    without_the_private_names,
]


def body_everything() -> None:
    torch.set_num_threads(1)
    hvd.init()
    run_each(EVERYTHING)


@each(EVERYTHING)
def test_what_shares_a_gradients_memory_keeps_its_values(run_checks, check):
    run_checks(2, body_everything, check)
