"""Networks that are trained on a device over the backend gyre must come out as one process trains them, equal on all
ranks: with its own backend for the device, and through host memory. On the simulated device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sim_device
import torch
import torch.distributed as dist
from checks import RunChecks, each, run_each
from sim_device import own_device
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIZE = 4


def a_network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(12, 40), nn.BatchNorm1d(40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3)
    )


def batch(step: int) -> torch.Tensor:
    return torch.rand(SIZE * 4, 12, generator=torch.Generator().manual_seed(step))


def train(network: nn.Module, device: torch.device, rows: slice, steps: int = 4) -> None:
    network.eval()  # Batch norm would see the rank's rows alone.
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        network(batch(step)[rows].to(device)).square().mean().backward()
        optimizer.step()


def trained_alone() -> list[torch.Tensor]:
    network = a_network()
    train(network, torch.device("cpu"), slice(None))
    return [parameter.detach() for parameter in network.parameters()]


def own_rows() -> slice:
    return slice(4 * dist.get_rank(), 4 * dist.get_rank() + 4)


def check_trained(parameters: list[torch.Tensor]) -> None:
    """Equal on all ranks, and to what one process makes of all batches."""
    for ours, alone in zip(parameters, trained_alone(), strict=True):
        torch.testing.assert_close(ours, alone, rtol=1e-5, atol=1e-6)
        gathered = [torch.zeros_like(ours) for _ in range(SIZE)]
        dist.all_gather(gathered, ours.contiguous())
        assert all(torch.equal(one, ours) for one in gathered)


def ddp_trains_as_one_process_does() -> None:
    device = own_device()
    for options in ({}, {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.01}):
        network = DistributedDataParallel(a_network().to(device), **options)
        train(network, device, own_rows())
        check_trained([parameter.detach().cpu() for parameter in network.parameters()])


def fsdp2_trains_as_one_process_does() -> None:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415  Takes a second to import.
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    from torch.distributed.tensor import DTensor  # noqa: PLC0415

    device = own_device()
    torch.accelerator.set_device_index(device.index)
    mesh = init_device_mesh(sim_device.NAME, (2, 2), mesh_dim_names=("replicas", "shards"))
    network: Any = a_network().to(device)
    for layer in network:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    train(network, device, own_rows())
    whole = [parameter.full_tensor() for parameter in network.parameters() if isinstance(parameter, DTensor)]
    check_trained([parameter.detach().cpu() for parameter in whole])
    torch.accelerator.set_device_index(0)


def zero_trains_as_one_process_does() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415  Takes a second to import.

    device = own_device()
    network = DistributedDataParallel(a_network().to(device)).eval()
    optimizer = ZeroRedundancyOptimizer(network.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad()
        network(batch(step)[own_rows()].to(device)).square().mean().backward()
        optimizer.step()
    check_trained([parameter.detach().cpu() for parameter in network.parameters()])


CHECKS: list[Callable[[], None]] = [
    ddp_trains_as_one_process_does,
    fsdp2_trains_as_one_process_does,
    zero_trains_as_one_process_does,
]


def body() -> None:
    sim_device.join_group(SIZE)
    run_each(CHECKS)
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", sim_device.BACKENDS)
@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
@each(CHECKS)
def test_a_network_on_a_device(run_checks: RunChecks, schedule: str, backend: str, check: Callable[[], None]) -> None:
    run_checks(SIZE, body, check, environment={"SCHEDULE": schedule, "BACKEND": backend})
