"""Networks that gyre.torch trains on a device must come out as on the CPU, with every option of the optimizer, and
state must arrive where each rank keeps it: through host memory to the bit, and by the device's own library. On the
simulated device, with a stand-in for NCCL."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import gyre.torch as hvd
import pytest
import sim_device
import torch
from checks import RunChecks, each, run_each
from gyre.errors import CallOrderError, MismatchError
from horovod_on_device import leave, own_device
from torch import nn
from torch.utils.checkpoint import checkpoint

SIZE = 2
STEPS = 4
CPU = torch.device("cpu")

Network = Callable[[], nn.Module]
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    # A gradient that is 0 but for its rounding moves nothing.
    "adamw": functools.partial(torch.optim.AdamW, lr=0.01, eps=1e-3),
}


def a_network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 5)
    )


def batch(step: int) -> torch.Tensor:
    return torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(10 * step + hvd.rank()))


def trained(
    device: torch.device, optimizer: str = "sgd", network: Network = a_network, passes: int = 1, **options: Any
) -> list[torch.Tensor]:
    model = network().to(device)
    base = OPTIMIZERS[optimizer](model.parameters())
    steps = hvd.DistributedOptimizer(base, model.named_parameters(), backward_passes_per_step=passes, **options)
    for step in range(STEPS):
        steps.zero_grad()
        for one in range(passes):
            model(batch(step * passes + one).to(device)).square().mean().backward()
        steps.step()
    return state_of(model)


def state_of(model: nn.Module) -> list[torch.Tensor]:
    return [tensor.detach().cpu() for tensor in model.state_dict().values()]


def check_same(train: Callable[[torch.device], list[torch.Tensor]]) -> None:
    """On a device as on the CPU, and on all ranks alike."""
    for ours, wanted in zip(train(own_device()), train(CPU), strict=True):
        assert sim_device.trained_alike(ours, wanted), (ours, wanted)


def every_optimizer() -> None:
    for optimizer in OPTIMIZERS:
        check_same(functools.partial(trained, optimizer=optimizer))


class Halved(hvd.Compressor):
    """Half precision of half the values, which the context restores."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return (tensor * 0.5).to(torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor.to(ctx) * 2


def every_option() -> None:
    for options in (
        {"passes": 3},
        {"compression": hvd.Compression.fp16},
        {"compression": hvd.Compression.bf16, "error_feedback": True},
        {"compression": Halved},
        {"compression": Halved, "passes": 2},
        {"groups": 2},
        {"op": hvd.Sum},
        {"op": hvd.Adasum},
        {"gradient_predivide_factor": 2.0},
        {"end_in_backward": False},
        {"divide_by_contributors": True},
    ):
        check_same(functools.partial(trained, **options))


def weights_in_an_unusual_order() -> None:
    def train(device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(4)
        weight = nn.Parameter(torch.rand(2, 3, 4).to(device).permute(2, 0, 1))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1))
        for step in range(STEPS):
            optimizer.zero_grad()
            (weight.square() * (hvd.rank() + step)).sum().backward()
            optimizer.step()
        assert weight.stride() == (1, 12, 4)
        return [weight.detach().cpu()]

    check_same(train)


def parameters_without_a_gradient_on_some_rank() -> None:
    def train(device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(4)
        both = [nn.Parameter(torch.rand(5).to(device)) for _ in range(2)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(both, lr=0.1))
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = both[0].square().sum() * (hvd.rank() + 1)
            (loss + both[1].square().sum() if (hvd.rank() + step) % 2 else loss).backward()
            optimizer.step()
        return [parameter.detach().cpu() for parameter in both]

    check_same(train)


def clipping_between_backward_and_step() -> None:
    def train(device: torch.device, *, asked: bool) -> list[torch.Tensor]:
        model = a_network().to(device)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), end_in_backward=not asked)
        for step in range(STEPS):
            optimizer.zero_grad()
            model(batch(step).to(device)).square().mean().backward()
            if asked:
                optimizer.synchronize()
            nn.utils.clip_grad_value_(model.parameters(), 0.01)
            with optimizer.skip_synchronize():
                optimizer.step()
        return state_of(model)

    check_same(functools.partial(train, asked=True))
    check_same(functools.partial(train, asked=False))


def a_model_on_the_cpu_and_on_two_devices() -> None:
    def train(devices: list[torch.device]) -> list[torch.Tensor]:
        torch.manual_seed(5)
        layers = [nn.Linear(6, 6).to(device) for device in devices for _ in range(8)]
        parameters = [parameter for layer in layers for parameter in layer.parameters()]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1))
        for step in range(STEPS):
            optimizer.zero_grad()
            inputs = torch.rand(3, 6, generator=torch.Generator().manual_seed(10 * step + hvd.rank()))
            loss = torch.zeros(())
            for layer in layers:
                inputs = torch.tanh(layer(inputs.to(layer.weight.device)))
                loss = loss + inputs.square().sum().cpu()
            loss.backward()
            optimizer.step()
        return [parameter.detach().cpu() for parameter in parameters]

    ours = train([CPU, sim_device.device(0), sim_device.device(1)])
    assert all(map(sim_device.trained_alike, ours, train([CPU, CPU, CPU])))


def a_rank_on_the_cpu_among_ranks_on_devices() -> None:
    ours = trained(CPU if hvd.rank() == 0 else own_device())
    assert all(map(sim_device.trained_alike, ours, trained(CPU)))


class PartlyCheckpointed(nn.Module):
    """The part's backward() runs inside the whole one's, which brings the rest of the gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.first, self.part = a_network(), nn.Linear(5, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(checkpoint(self.part, self.first(inputs), use_reentrant=True))


def a_backward_inside_another_does_not_end_the_exchange() -> None:
    """On a device it runs in a thread of autograd's, where the outer one cannot be seen."""

    def train(device: torch.device) -> list[torch.Tensor]:
        model = PartlyCheckpointed().to(device)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        for step in range(STEPS):
            optimizer.zero_grad()
            model(batch(step).to(device)).square().mean().backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.01)  # An error, if the exchange had not ended.
            optimizer.step()
        return state_of(model)

    check_same(train)


def nothing_waits_before_the_end_of_backward() -> None:
    control, device = sim_device.load(), own_device()
    weights = [nn.Parameter(torch.full((50,), 0.5).to(device)) for _ in range(30)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.1), end_in_backward=False)
    for step in range(3):
        optimizer.zero_grad()
        torch.accelerator.synchronize(device)
        before = control.counters()["host_waits"]
        sum((weight * (hvd.rank() + 1)).square().sum() for weight in weights).backward()  # type: ignore[union-attr]
        if step > 0:  # In the first one the plan is made when it ends.
            assert control.counters()["host_waits"] == before
        optimizer.step()


def gradients_are_reduced_on_the_users_stream() -> None:
    device = own_device()
    weight, stream = nn.Parameter(torch.ones(40).to(device)), torch.Stream(device)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    torch.accelerator.current_stream(device).synchronize()
    for step in range(STEPS):
        with stream:
            optimizer.zero_grad()
            (weight * (hvd.rank() + 1 + step)).sum().backward()
            gradient = weight.grad
            assert gradient is not None
            doubled = gradient * 2
        stream.synchronize()
        assert doubled.cpu().tolist() == [2 * (1.5 + step)] * 40
        with stream:
            optimizer.step()
    stream.synchronize()


def gradients_may_be_dropped_right_after_backward() -> None:
    device = own_device()
    weight = nn.Parameter(torch.ones(64).to(device))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.0), end_in_backward=False)
    for step in range(6):
        optimizer.zero_grad()
        (weight * (hvd.rank() + step)).sum().backward()
        kept, weight.grad = weight.grad, None
        del kept
        torch.full((64,), -1.0, device=device)  # Might get the gradient's memory.
        if step == 0:
            with pytest.raises(CallOrderError, match="was changed between backward"):
                optimizer.step()
            continue
        with pytest.raises(CallOrderError, match="was changed between backward"):
            optimizer.step()
        assert weight.grad is not None
        assert weight.grad.cpu().tolist() == [0.5 + step] * 64


def compressed_gradients_are_freed_before_they_have_been_copied() -> None:
    device = own_device()
    weights = [nn.Parameter(torch.ones(64).to(device)) for _ in range(6)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.0), compression=Halved, end_in_backward=False)
    for _ in range(3):
        optimizer.zero_grad()
        sum(((hvd.rank() + number) * weight).sum() for number, weight in enumerate(weights)).backward()  # type: ignore[union-attr]
        torch.accelerator.current_stream(device).synchronize()  # The copies have a stream of their own.
        optimizer.step()
        assert [weight.grad.cpu().tolist() for weight in weights if weight.grad is not None] == [
            [0.5 + number] * 64 for number in range(6)
        ]


def steps_that_a_scaler_skips() -> None:
    def train(device: torch.device, *, ours: bool) -> list[torch.Tensor]:
        model = a_network().to(device)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        scaler = (hvd.GradScaler if ours else torch.amp.GradScaler)(device.type, init_scale=4.0, growth_interval=2)
        scales = []
        for step in range(STEPS):
            model.zero_grad()
            loss = model(batch(step).to(device)).square().mean()
            bad = step == 2 and hvd.rank() == 1
            scaler.scale(loss * (float("inf") if bad else 1.0)).backward()
            if step % 2:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_value_(model.parameters(), 0.01)
            scaler.step(optimizer)
            scaler.update()
            scales.append(torch.tensor(scaler.get_scale()))
        return [*state_of(model), *scales]

    check_same(functools.partial(train, ours=True))
    check_same(functools.partial(train, ours=False))


def a_default_device_of_the_program() -> None:
    """What Gyre makes for itself must be in host memory all the same."""
    results = []
    for device in (own_device(), CPU):
        with torch.device(device):
            weight = nn.Parameter(torch.full((3, 2), 0.5) + hvd.rank())
            hvd.broadcast_parameters([weight], root_rank=1)
            optimizer = hvd.DistributedOptimizer(torch.optim.AdamW([weight], lr=0.1))
            for step in range(STEPS):
                optimizer.zero_grad()
                (weight * (hvd.rank() + step)).sum().backward()
                optimizer.step()
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            rows = torch.ones(2, 1, requires_grad=True)
            (hvd.allgather(rows) * (hvd.rank() + 1)).sum().backward()
            assert rows.grad is not None
            named = hvd.broadcast_object({"weight": weight.detach()}, 0)["weight"]
            empty = hvd.allgather(torch.zeros(0, 2))
            adapted = hvd.allreduce(torch.ones(3) + hvd.rank(), op=hvd.Adasum)
            received = hvd.alltoall(torch.ones(4), [2, 2])
            results.append([weight.detach(), rows.grad, named, empty, adapted, *received])
    assert all(map(sim_device.trained_alike, *results)), results


# State.


def stepped(device: torch.device, optimizer: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = a_network().to(device)
    steps = OPTIMIZERS[optimizer](model.parameters())
    model(batch(0).to(device)).square().mean().backward()
    steps.step()
    return model, steps


def parameters_of_one_rank() -> None:
    def sent(device: torch.device) -> list[torch.Tensor]:
        model, _ = stepped(device, "sgd")
        hvd.broadcast_parameters(model.state_dict(), root_rank=1)
        hvd.broadcast_parameters(list(model.named_parameters()), root_rank=0)
        return state_of(model)

    check_same(sent)


def flat(state: Any) -> Iterator[torch.Tensor]:
    for one in state.state_dict()["state"].values():
        yield from (value for value in one.values() if isinstance(value, torch.Tensor))


def the_state_of_one_ranks_optimizer() -> None:
    """Of a rank that has stepped alone, to one that has no state yet, and to one that has."""
    for optimizer, made in OPTIMIZERS.items():
        for root_alone in (True, False):

            def sent(
                device: torch.device, optimizer: str = optimizer, made: Any = made, alone: bool = root_alone
            ) -> list[torch.Tensor]:
                model, steps = stepped(device, optimizer)
                if alone and hvd.rank() == 1:
                    steps = made(model.parameters())
                hvd.broadcast_parameters(model.state_dict(), root_rank=0)
                hvd.broadcast_optimizer_state(steps, root_rank=0)
                states = list(flat(steps))
                assert states
                assert all(state.device in (device, CPU) for state in states)
                model.zero_grad()
                model(torch.ones(1, 3, 8, 8).to(device)).square().mean().backward()
                steps.step()
                return [*state_of(model), *(state.cpu() for state in flat(steps))]

            check_same(sent)


def different_replicas_are_named() -> None:
    device = own_device()
    weight = nn.Parameter(torch.full((3,), float(hvd.rank())).to(device))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=0.1), unequal_replicas="error", end_in_backward=False
    )
    weight.sum().backward()
    with pytest.raises(MismatchError, match="do not start with the same parameters"):
        optimizer.step()


def batch_norm_over_all_ranks() -> None:
    def network() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.Conv2d(3, 6, 3), hvd.SyncBatchNorm(6), nn.Tanh(), nn.Flatten(), nn.Linear(216, 5))

    check_same(functools.partial(trained, network=network))


def a_rank_joins_after_fewer_steps() -> None:
    def train(device: torch.device) -> list[torch.Tensor]:
        weight = nn.Parameter(torch.ones(5).to(device))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), divide_by_contributors=True)
        for step in range(2 + 2 * hvd.rank()):
            optimizer.zero_grad()
            (weight * (hvd.rank() + 1 + step)).sum().backward()
            optimizer.step()
        hvd.join()
        hvd.broadcast_parameters([weight], root_rank=1)
        return [weight.detach().cpu()]

    check_same(train)


CHECKS: list[Callable[[], None]] = [
    every_optimizer,
    every_option,
    weights_in_an_unusual_order,
    parameters_without_a_gradient_on_some_rank,
    clipping_between_backward_and_step,
    a_model_on_the_cpu_and_on_two_devices,
    a_rank_on_the_cpu_among_ranks_on_devices,
    a_backward_inside_another_does_not_end_the_exchange,
    *sim_device.simulated_only([nothing_waits_before_the_end_of_backward]),
    gradients_are_reduced_on_the_users_stream,
    gradients_may_be_dropped_right_after_backward,
    compressed_gradients_are_freed_before_they_have_been_copied,
    steps_that_a_scaler_skips,
    a_default_device_of_the_program,
    parameters_of_one_rank,
    the_state_of_one_ranks_optimizer,
    different_replicas_are_named,
    batch_norm_over_all_ranks,
    a_rank_joins_after_fewer_steps,
]


def body() -> None:
    sim_device.begin()
    hvd.init()
    run_each(CHECKS)
    leave()


@pytest.mark.parametrize("carrier", sim_device.CARRIERS)
@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
@each(CHECKS)
def test_training_on_a_device(run_checks: RunChecks, schedule: str, carrier: str, check: Callable[[], None]) -> None:
    run_checks(SIZE, body, check, environment={"SCHEDULE": schedule, "CARRIER": carrier})
