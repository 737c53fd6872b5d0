"""What people train with must train over Gyre as over gloo: DDP (with hooks, compiled), FSDP2 and
ZeroRedundancyOptimizer, unchanged."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import gyre.distributed  # noqa: F401  Makes the backend known.
import pytest
import torch
import torch.distributed as dist
from gyre.bench.ranks.groups import leave, never_take_apart
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
BATCH = 8


def start(backend: str) -> tuple[int, int]:
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    dist.init_process_group(
        backend,
        init_method=f"file://{os.getcwd()}/store-{backend}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    if backend == "gloo":
        never_take_apart(dist.group.WORLD)
    return rank, size


class Network(nn.Module):
    """Convolution, BatchNorm's buffers, and a part that some steps do not use."""

    def __init__(self) -> None:
        super().__init__()
        # A bias before BatchNorm has no gradient but rounding, of which Adam would make steps of full length.
        convolution = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.convolution = nn.Sequential(convolution, nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(4))
        self.head = nn.Sequential(nn.Linear(32, 300), nn.ReLU(), nn.Linear(300, 10))
        self.sometimes = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor, use_all: bool) -> torch.Tensor:
        features = self.convolution(images).flatten(1)
        result: torch.Tensor = self.head(features)
        return result + self.sometimes(features) if use_all else result


def train(model: nn.Module, optimizer: Any, rank: int, *, unused: bool) -> None:
    generator = torch.Generator().manual_seed(100 + rank)
    for step in range(STEPS):
        images = torch.randn(BATCH, 3, 8, 8, generator=generator)
        labels = torch.randint(0, 10, (BATCH,), generator=generator)
        optimizer.zero_grad()
        use_all = not unused or (step + rank) % 3 == 0
        nn.functional.cross_entropy(model(images, use_all), labels).backward()
        optimizer.step()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def ddp(rank: int) -> list[torch.Tensor]:
    """Plain, with parameters that stay unused on some ranks, with buckets as gradients, with accumulation."""
    weights: list[torch.Tensor] = []
    for arguments in (
        {"bucket_cap_mb": 0.02},
        {"find_unused_parameters": True},
        {"gradient_as_bucket_view": True, "static_graph": True},
    ):
        torch.manual_seed(5 + rank)  # DDP itself gives everybody rank 0's weights.
        model = DistributedDataParallel(Network(), **arguments)  # type: ignore[arg-type]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        train(model, optimizer, rank, unused="find_unused_parameters" in arguments)
        with model.no_sync():
            model(torch.ones(2, 3, 8, 8), True).sum().backward()
        model(torch.ones(2, 3, 8, 8), True).sum().backward()
        weights += [whole(tensor) for tensor in model.state_dict().values()]
        weights += [whole(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
    return weights


def hooked(rank: int) -> list[torch.Tensor]:
    """DDP with communication hooks; PowerSGD's wait for further operations in the callbacks of the first."""
    weights: list[torch.Tensor] = []
    for hook, state in (
        (default_hooks.fp16_compress_hook, None),
        (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)),
    ):
        torch.manual_seed(8)
        model = DistributedDataParallel(Network())
        model.register_comm_hook(state, hook)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, unused=False)
        weights += [whole(parameter) for parameter in model.parameters()]
    return weights


def compiled(rank: int) -> list[torch.Tensor]:
    """torch.compile looks at every Python function that DDP calls, the process group's too."""
    torch.manual_seed(9)
    model = DistributedDataParallel(Network())
    traced = torch.compile(model, backend="eager")  # Traced as for any other backend, without a compiler.
    train(traced, torch.optim.SGD(model.parameters(), lr=0.1), rank, unused=False)
    return [whole(parameter) for parameter in model.parameters()]


def fsdp2(rank: int) -> list[torch.Tensor]:
    torch.manual_seed(6)
    model = Network()
    fully_shard(model.head)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train(model, optimizer, rank, unused=False)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return [whole(parameter) for parameter in model.parameters()]


def zero(rank: int) -> list[torch.Tensor]:
    torch.manual_seed(7)
    model = DistributedDataParallel(Network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    train(model, optimizer, rank, unused=False)
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))
    return [whole(parameter) for parameter in model.parameters()]


TRAININGS: list[Callable[[int], list[torch.Tensor]]] = [ddp, hooked, compiled, fsdp2, zero]


def trainings_as_over_gloo() -> None:
    """Between two ranks sums have one order only, so all bits must be the same. With more ranks gloo adds in an order
    of its own: each of the steps may differ by the rounding of a few additions, which Adam's division can enlarge."""
    weights: dict[str, list[list[torch.Tensor]]] = {}
    size = 0
    for backend in ("gyre", "gloo"):
        rank, size = start(backend)
        weights[backend] = [training(rank) for training in TRAININGS]
        checksum = torch.stack([tensor.double().sum() for tensors in weights[backend] for tensor in tensors[:6]])
        everyone = [torch.zeros_like(checksum) for _ in range(size)]
        dist.all_gather(everyone, checksum)
        assert all(torch.equal(other, checksum) for other in everyone), "the ranks' weights differ"
        dist.destroy_process_group()
    for training, ours, theirs in zip(TRAININGS, weights["gyre"], weights["gloo"], strict=True):
        for own, other in zip(ours, theirs, strict=True):
            if size == 2:
                assert torch.equal(own, other), training.__name__
            else:
                torch.testing.assert_close(
                    own, other, rtol=1e-3, atol=1e-4, msg=lambda text, name=training.__name__: f"{name}: {text}"
                )
    leave()


def in_place_bytes() -> int:
    group: Any = dist.group.WORLD
    return sum(lane["bytes_in_place"] for lane in group.statistics_source().statistics()["lanes"])


class Wide(nn.Module):
    """Its buckets are large enough to be lent."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = layer(inputs).tanh()
        return inputs


def wide(rank: int, **arguments: Any) -> list[torch.Tensor]:
    torch.manual_seed(8)
    model = DistributedDataParallel(Wide(), bucket_cap_mb=1, **arguments)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + rank)
    held = []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        model(torch.randn(BATCH, 512, generator=generator)).square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        held += [whole(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
    return held + [whole(parameter) for parameter in model.parameters()]


def peer_mapped_buckets_change_no_bit() -> None:
    """gloo's sums of two are ours; with more ranks what was copied is the measure."""
    rank, size = start("gyre")
    group: Any = dist.group.WORLD
    lent = wide(rank) + wide(rank, gradient_as_bucket_view=True)
    exchanged = in_place_bytes()
    assert exchanged == 2 * STEPS * 4 * sum(parameter.numel() for parameter in Wide().parameters())
    if rank == 1:
        group._peer_mapped._possible = False
    copied = wide(rank) + wide(rank, gradient_as_bucket_view=True)
    assert in_place_bytes() == exchanged, "where one rank maps nothing, all copy"
    dist.destroy_process_group()
    assert all(torch.equal(own, other) for own, other in zip(lent, copied, strict=True))
    if size == 2:
        start("gloo")
        gloo = wide(rank) + wide(rank, gradient_as_bucket_view=True)
        dist.destroy_process_group()
        assert all(torch.equal(own, other) for own, other in zip(lent, gloo, strict=True))
        leave()


@pytest.mark.parametrize("size", [2, 3])
def test_ddps_buckets_are_reduced_where_they_lie_to_the_same_bits(run_ranks: Any, size: int) -> None:
    run_ranks(size, peer_mapped_buckets_change_no_bit, timeout_s=180)


def tensors_of_the_user_stay() -> None:
    rank, size = start("gyre")
    tensor = torch.ones(1 << 20)
    array = tensor.numpy()
    parameter = nn.Parameter(torch.ones(1 << 20))

    def exchange(gradient: torch.Tensor) -> None:
        dist.all_reduce(gradient, async_op=True).wait()

    parameter.register_hook(exchange)
    for _ in range(3):
        tensor.fill_(rank + 1)
        dist.all_reduce(tensor, async_op=True).wait()
        assert array[-1] == size * (size + 1) / 2
        parameter.square().sum().backward()  # type: ignore[no-untyped-call]
    assert tensor.data_ptr() == array.ctypes.data
    assert not tensor.is_shared()
    assert in_place_bytes() == 0
    dist.destroy_process_group()


def test_tensors_of_the_user_are_not_moved(run_ranks: Any) -> None:
    run_ranks(2, tensors_of_the_user_stay)


@pytest.mark.parametrize("size", [2, 3])
def test_ddp_fsdp2_and_zero_end_with_gloos_weights(run_ranks: Any, size: int) -> None:
    run_ranks(size, trainings_as_over_gloo, timeout_s=180)


def a_dead_rank_ends_the_training() -> None:
    rank, _ = start("gyre")
    model = DistributedDataParallel(nn.Linear(4, 4))
    for step in range(100):
        if rank == 1 and step == 3:
            os._exit(9)
        model(torch.ones(1, 4)).sum().backward()


def test_a_dead_rank_ends_ddp_on_the_others_with_its_number(run_ranks: Any) -> None:
    outcomes = run_ranks(3, a_dead_rank_ends_the_training, check=False)
    assert outcomes[1].code == 9
    for rank in (0, 2):
        assert outcomes[rank].code == 1, outcomes[rank].output
        assert "rank 1" in outcomes[rank].output
        assert socket.gethostname() in outcomes[rank].output
