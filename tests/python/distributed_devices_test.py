"""`cpu:gyre,cuda:nccl` must leave the other device to its backend: Gyre exchanges tensors in host memory alone. What a
backend does with tensors is tested in tests/device."""

from __future__ import annotations

import os
from typing import Any

import gyre.distributed
import pytest
import torch
import torch.distributed as dist
from gyre.bench.ranks.groups import leave
from gyre.errors import UnsupportedError
from torch.distributed.distributed_c10d import BackendConfig

META = torch.device("meta")


class Done(dist.Work):
    def wait(self, timeout: object = None) -> bool:
        del timeout
        return True


class StandIn(dist.ProcessGroup):
    """What NCCL is to CUDA tensors, for tensors of the device meta: it notes what it is asked for."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.calls: list[str] = []

    def getBackendName(self) -> str:  # noqa: N802  torch's name.
        return "standin"

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self.own_name = name

    def getGroupName(self) -> str:  # noqa: N802
        return self.own_name

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self.description = description

    def getGroupDesc(self) -> str:  # noqa: N802
        return self.description

    def _get_backend(self, device: torch.device) -> StandIn:
        assert device.type == "meta"
        return self

    def shutdown(self) -> None:
        self.calls.append("shutdown")


def _noted(name: str) -> Any:
    def method(self: StandIn, *arguments: Any, **options: Any) -> dist.Work:
        del arguments, options
        self.calls.append(name)
        return Done()

    return method


def calls(size: int) -> dict[str, Any]:
    """By the name of the group's method."""
    one, many = torch.zeros(2, device=META), [torch.zeros(2, device=META)] * size
    return {
        "allreduce": lambda: dist.all_reduce(one),
        "broadcast": lambda: dist.broadcast(one, 0),
        "reduce": lambda: dist.reduce(one, 0),
        "allgather": lambda: dist.all_gather(many, one),
        "all_gather_single": lambda: dist.all_gather_into_tensor(torch.cat(many), one),
        "reduce_scatter": lambda: dist.reduce_scatter(one, many),
        "reduce_scatter_single": lambda: dist.reduce_scatter_tensor(one, torch.cat(many)),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.cat(many), torch.cat(many)),
        "alltoall": lambda: dist.all_to_all(many, many),
        "gather": lambda: dist.gather(one, many if dist.get_rank() == 0 else None, 0),
        "scatter": lambda: dist.scatter(one, many if dist.get_rank() == 0 else None, 0),
        "send": lambda: dist.send(one, 1 - dist.get_rank()),
        "recv": lambda: dist.recv(one, 1 - dist.get_rank()),
    }


for _name in calls(1):
    setattr(StandIn, _name, _noted(_name))


def other_devices_go_to_their_backend() -> None:
    made: list[StandIn] = []

    def make(store: object, rank: int, size: int, timeout: object) -> StandIn:
        del store, timeout
        made.append(StandIn(rank, size))
        return made[-1]

    dist.Backend.register_backend("standin", make, devices=["meta"])
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    # torch makes the first backend first, and asks nobody else once it is a ProcessGroup.
    method = f"file://{os.getcwd()}/store"
    dist.init_process_group("cpu:gyre,meta:standin,cuda:gloo", init_method=method, rank=rank, world_size=size)
    world: Any = dist.group.WORLD
    assert isinstance(world, gyre.distributed.ProcessGroup)
    assert len(made) == 1  # With the group: its constructor might wait for all ranks.
    evens = dist.new_group([0])  # The default is the world's backends.
    for call in calls(size).values():
        call()
    stand_in = made[0]
    assert (stand_in.rank(), stand_in.size()) == (rank, size)
    assert stand_in.calls == list(calls(size))
    assert world._get_backend(META) is stand_in
    assert world._device_types == [torch.device(name) for name in ("cpu", "meta", "cuda")]
    own = torch.ones(2)
    dist.all_reduce(own)
    assert own.tolist() == [size, size]
    dist.barrier()
    shared: list[Any] = [None] * size
    dist.all_gather_object(shared, rank)  # Objects stay in host memory.
    assert shared == list(range(size))
    assert stand_in.calls == list(calls(size))
    if rank == 0:
        dist.all_reduce(torch.zeros(2, device=META), group=evens)
        assert [other.calls for other in made[1:]] == [["allreduce"]]
        assert made[1].size() == 1
    assert len(made) == (2 if rank == 0 else 1)  # Only members make one.
    dist.destroy_process_group()
    assert stand_in.calls[-1] == "shutdown"
    backends_of_torchs_own(rank, size)


def backends_of_torchs_own(rank: int, size: int) -> None:
    """One in C++, and a device that nothing serves."""
    method = f"file://{os.getcwd()}/another"
    dist.init_process_group("cuda:gloo,cpu:gyre", init_method=method, rank=rank, world_size=size)
    world: Any = dist.group.WORLD
    assert isinstance(world._get_backend(torch.device("cuda")), dist.ProcessGroupGloo)
    assert world._get_backend(torch.device("cpu")) is world
    with pytest.raises(UnsupportedError, match="device 'meta', and so has no values"):
        dist.all_reduce(torch.zeros(2, device=META))
    own = torch.ones(2)
    dist.all_reduce(own)
    assert own.tolist() == [size, size]
    dist.barrier()
    leave()


def test_another_devices_tensors_go_to_the_backend_named_for_it(run_ranks: Any) -> None:
    run_ranks(2, other_devices_go_to_their_backend)


def a_backend_that_cannot_be_made_is_one_sentence() -> None:
    def make(*arguments: object) -> Any:
        del arguments
        raise RuntimeError("the cable is unplugged")

    dist.Backend.register_backend("broken", make, devices=["meta"])
    rank, size = int(os.environ["GYRE_RANK"]), int(os.environ["GYRE_SIZE"])
    method = f"file://{os.getcwd()}/store"
    with pytest.raises(UnsupportedError, match=r"on meta go to torch's backend broken, .*: the cable is unplugged"):
        dist.init_process_group("cpu:gyre,meta:broken", init_method=method, rank=rank, world_size=size)
    # NCCL's constructor waits for nobody, so that it is made when a tensor comes, and missed only then.
    method = f"file://{os.getcwd()}/another"
    dist.init_process_group("cpu:gyre,meta:xccl", init_method=method, rank=rank, world_size=size)
    with pytest.raises(UnsupportedError, match="has no XCCL"):
        dist.all_reduce(torch.zeros(2, device=META))
    own = torch.ones(2)
    dist.all_reduce(own)
    assert own.tolist() == [size, size]
    dist.destroy_process_group()


def test_a_backend_that_cannot_be_made(run_ranks: Any) -> None:
    run_ranks(2, a_backend_that_cannot_be_made_is_one_sentence)


def test_torch_reads_our_name_beside_another() -> None:
    assert BackendConfig("cpu:gyre,cuda:nccl").get_device_backend_map() == {"cpu": "gyre", "cuda": "nccl"}  # type: ignore[arg-type]
    assert BackendConfig("gyre").get_device_backend_map() == {"cpu": "gyre"}  # type: ignore[arg-type]
    defaults = dist.Backend.default_device_backend_map
    assert (defaults["cpu"], defaults["cuda"]) == ("gloo", "nccl")
