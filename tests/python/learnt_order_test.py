"""The first backward pass teaches the plan its order: counted by buckets that overtake another, not by a clock."""

import gyre.torch as hvd
import torch
from torch import nn

LAYERS = 6
WIDTH = 8


class Backwards(nn.Module):
    """Registered in another order than used, so that the reverse of the registration is the wrong guess."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, values: torch.Tensor, reverse: bool) -> torch.Tensor:
        for layer in reversed(self.layers) if reverse else self.layers:
            values = torch.tanh(layer(values))
        return values


def overtaken() -> int:
    (plan,) = hvd.statistics()["plans"]
    return plan["last"]["overtaken_buckets"]


def negotiated() -> int:
    return sum(lane["collectives"] for lane in hvd.statistics()["lanes"] if not lane["lane"].startswith("plan"))


def step(network: nn.Module, optimizer: torch.optim.Optimizer, reverse: bool) -> None:
    optimizer.zero_grad()
    network(torch.full((2, WIDTH), 1.0 + hvd.rank()), reverse).sum().backward()
    optimizer.step()


def body_learnt_order() -> None:
    torch.set_num_threads(1)
    hvd.init()
    network = Backwards()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.01), network.named_parameters())
    assert hvd.statistics()["plans"] == [], "the plan waits for the first step"
    step(network, optimizer, True)
    first = {name: parameter.grad.data_ptr() for name, parameter in network.named_parameters()}
    before = negotiated()
    for _ in range(3):
        step(network, optimizer, True)
        assert overtaken() == 0, "gradients come in the order that was learnt"
    # Frozen: another order is right too, only later.
    weights = [parameter.detach().clone() for parameter in network.parameters()]
    step(network, optimizer, False)
    assert overtaken() > 0
    assert negotiated() == before, "a step needs no message but its own"
    assert first == {name: parameter.grad.data_ptr() for name, parameter in network.named_parameters()}
    for parameter, old in zip(network.parameters(), weights, strict=True):
        torch.testing.assert_close(parameter, old - 0.01 * parameter.grad)


def body_rank_zero_teaches() -> None:
    """The others' first step takes another way; all follow rank 0."""
    torch.set_num_threads(1)
    hvd.init()
    network = Backwards()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.01), network.named_parameters())
    step(network, optimizer, hvd.rank() == 0)
    for _ in range(2):
        step(network, optimizer, True)
        assert overtaken() == 0
    own = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    everywhere = hvd.allgather(own.unsqueeze(0))
    assert all(torch.equal(other, own) for other in everywhere)


def body_memory() -> None:
    """Gradients are kept once: from the second step on what backward() leaves behind lies in the arena."""
    torch.set_num_threads(1)
    hvd.init()
    network = Backwards()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(network.parameters(), lr=0.01), network.named_parameters())
    for number, set_to_none in enumerate((True, True, False)):
        optimizer.zero_grad(set_to_none)
        network(torch.ones(2, WIDTH), True).sum().backward()
        after_backward = [parameter.grad.data_ptr() for parameter in network.parameters()]
        optimizer.step()
        if number > 0:
            assert after_backward == [parameter.grad.data_ptr() for parameter in network.parameters()]


ONE_BUCKET_EACH = {"GYRE_FUSION_BYTES": "0"}


def test_later_steps_come_in_the_order_of_the_first(run_ranks):
    run_ranks(2, body_learnt_order, environment=ONE_BUCKET_EACH)


def test_rank_zero_teaches_the_others(run_ranks):
    run_ranks(3, body_rank_zero_teaches, environment=ONE_BUCKET_EACH)


def test_backward_leaves_gradients_in_the_arena(run_ranks):
    run_ranks(2, body_memory)
