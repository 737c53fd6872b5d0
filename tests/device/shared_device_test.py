"""Two ranks on one device are the commonest mistake with NCCL, whose error says little: Gyre compares their devices
first. On the simulated device, with a stand-in for NCCL."""

from __future__ import annotations

import logging
import types
from datetime import timedelta

import pytest
import sim_device
import torch
import torch.distributed as dist
from gyre.errors import MismatchError, UnsupportedError
from ranks_fixture import RunRanks

SIZE = 3


def join_on(identities: list[str], timeout: float = 60) -> torch.device:
    """Each rank's device has the identity of its number."""
    sim_device.join_group(SIZE, timedelta(seconds=timeout))
    own = identities[dist.get_rank()]
    torch.sim.get_device_properties = lambda device: types.SimpleNamespace(uuid=own)  # type: ignore[attr-defined]  # noqa: ARG005
    return sim_device.own_device()


def body_on_one_device() -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gyre").addHandler(handler)
    device = join_on(["one", "two", "one"])
    rank, part = dist.get_rank(), dist.new_group()
    for _ in range(2):
        for group in (dist.group.WORLD, part):
            with dist._coalescing_manager(group=group, device=device, async_ops=True) as works:
                sums = [torch.full((3,), float(rank), device=device) for _ in range(2)]
                for one in sums:
                    dist.all_reduce(one, group=group)
            works.wait()
            assert [one.tolist() for one in sums] == [[3.0] * 3] * 2
            gathered = torch.empty(SIZE, device=device)
            dist.all_gather_into_tensor(gathered, torch.ones(1, device=device) * rank, group=group)
            assert gathered.tolist() == [0.0, 1.0, 2.0]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).to(device))
    model(torch.full((2, 4), float(rank), device=device)).sum().backward()
    assert model.module.weight.grad.tolist() == [[2.0] * 4] * 2
    dist.barrier(device_ids=[device.index])
    dist.destroy_process_group()
    assert len([text for text in said if "ranks 0 and 2 use the same device" in text]) == (rank == 0), said


@sim_device.needs_simulation
def test_under_gyre_ranks_on_one_device_exchange_through_host_memory(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_on_one_device, environment={"SCHEDULE": "lazy", "BACKEND": "gyre"})


def body_with_the_backend_named() -> None:
    device = join_on(["one", "two", "one"])
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="ranks 0 and 2 use the same device, which torch's backend standin"):
            dist.all_reduce(torch.ones(3, device=device))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # The CPU's go on.
    assert tensor.tolist() == [SIZE] * 3


@sim_device.needs_simulation
def test_where_the_program_names_the_backend_it_is_one_error(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_with_the_backend_named, environment={"SCHEDULE": "lazy", "BACKEND": "cpu:gyre,sim:standin"})


def body_whose_first_calls_differ() -> None:
    device = join_on(["one", "two", "three"])
    if dist.get_rank() == 0:
        with pytest.raises(MismatchError, match="what exchanges the tensor differs"):
            dist.all_reduce(torch.ones(3))
    else:
        with pytest.raises(dist.DistBackendError, match="what exchanges the tensor differs"):
            dist.all_reduce(torch.ones(3, device=device))


@sim_device.needs_simulation
def test_first_calls_that_differ_are_found_while_devices_are_compared(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_whose_first_calls_differ, environment={"SCHEDULE": "lazy", "BACKEND": "gyre"})
