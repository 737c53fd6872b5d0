"""A group of the backend gyre gives a device's tensors to that device's own backend, or exchanges them through host
memory: every operation must have the CPU's result, and nothing may be read before it is written. All of it on the
simulated device, with a stand-in for NCCL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sim_device
import torch
import torch.distributed as dist
from checks import RunChecks, each, run_each
from gyre.errors import UnsupportedError
from sim_device import own_device
from torch.distributed import ReduceOp

SIZE = 4


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """This rank's; small integers, so that every order of a sum has the same bits."""
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    return torch.randint(1, 5, shape, generator=generator).to(dtype)


def same_as_on_the_cpu(operation: Callable[[torch.device], Any]) -> None:
    """`operation` makes tensors on a device, and returns those that it has changed."""
    ours, cpus = operation(own_device()), operation(torch.device("cpu"))
    for result, wanted in zip(ours, cpus, strict=True):
        assert result.device == own_device()
        assert torch.equal(result.cpu(), wanted), (result.cpu(), wanted)


# The operations.


def every_reduction() -> None:
    for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT):
        for dtype in (torch.float32, torch.float64, torch.int64):

            def reduced(device: torch.device, op: Any = op, dtype: torch.dtype = dtype) -> list[torch.Tensor]:
                tensor = values(7, 3, dtype=dtype).to(device)
                dist.all_reduce(tensor, op)
                return [tensor]

            if not (op == ReduceOp.AVG and dtype == torch.int64):
                same_as_on_the_cpu(reduced)

    def halves(device: torch.device) -> list[torch.Tensor]:
        tensor = values(5).to(device)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))  # type: ignore[attr-defined]
        return [tensor]

    same_as_on_the_cpu(halves)


def broadcasts_and_reductions_to_a_root() -> None:
    for root in range(SIZE):

        def broadcast(device: torch.device, root: int = root) -> list[torch.Tensor]:
            tensor = values(6).to(device)
            dist.broadcast(tensor, root)
            return [tensor]

        def reduced(device: torch.device, root: int = root) -> list[torch.Tensor]:
            tensor = values(6).to(device)
            dist.reduce(tensor, root)
            return [tensor] if dist.get_rank() == root else []

        same_as_on_the_cpu(broadcast)
        same_as_on_the_cpu(reduced)


def gathers_and_scatters() -> None:
    rank = dist.get_rank()

    def all_gather(device: torch.device) -> list[torch.Tensor]:
        parts = [torch.zeros(3, device=device) for _ in range(SIZE)]
        dist.all_gather(parts, values(3).to(device))
        return parts

    def all_gather_into_tensor(device: torch.device) -> list[torch.Tensor]:
        whole = torch.zeros(3 * SIZE, device=device)
        dist.all_gather_into_tensor(whole, values(3).to(device))
        return [whole]

    def reduce_scatter(device: torch.device) -> list[torch.Tensor]:
        part = torch.zeros(3, device=device)
        dist.reduce_scatter(part, [values(3, seed=n).to(device) for n in range(SIZE)])
        return [part]

    def reduce_scatter_tensor(device: torch.device) -> list[torch.Tensor]:
        part = torch.zeros(3, device=device)
        dist.reduce_scatter_tensor(part, values(3 * SIZE).to(device), ReduceOp.AVG)
        return [part]

    def gather(device: torch.device) -> list[torch.Tensor]:
        parts = [torch.zeros(3, device=device) for _ in range(SIZE)] if rank == 1 else None
        dist.gather(values(3).to(device), parts, 1)
        return parts or []

    def scatter(device: torch.device) -> list[torch.Tensor]:
        part = torch.zeros(3, device=device)
        dist.scatter(part, [values(3, seed=n).to(device) for n in range(SIZE)] if rank == 2 else None, 2)
        return [part]

    for operation in (all_gather, all_gather_into_tensor, reduce_scatter, reduce_scatter_tensor, gather, scatter):
        same_as_on_the_cpu(operation)


def exchanges_of_all_with_all() -> None:
    rank = dist.get_rank()

    def lists(device: torch.device) -> list[torch.Tensor]:
        parts = [torch.zeros(2, device=device) for _ in range(SIZE)]
        dist.all_to_all(parts, [values(2, seed=n).to(device) for n in range(SIZE)])
        return parts

    def even(device: torch.device) -> list[torch.Tensor]:
        whole = torch.zeros(SIZE, 3, device=device)
        dist.all_to_all_single(whole, values(SIZE, 3).to(device))
        return [whole]

    def uneven(device: torch.device) -> list[torch.Tensor]:
        sent = [(rank + other) % 3 for other in range(SIZE)]  # What two ranks send each other is equally long.
        whole = torch.zeros(sum(sent), 2, device=device)
        dist.all_to_all_single(whole, values(sum(sent), 2).to(device), sent, sent)
        return [whole]

    for operation in (lists, even, uneven):
        same_as_on_the_cpu(operation)


def messages_between_two_ranks() -> None:
    rank = dist.get_rank()

    def around(device: torch.device) -> list[torch.Tensor]:
        received = torch.zeros(4, device=device)
        if rank % 2:
            dist.recv(received, rank - 1)
            dist.send(values(4).to(device), rank - 1)
        else:
            dist.send(values(4).to(device), rank + 1)
            dist.recv(received, rank + 1)
        return [received]

    same_as_on_the_cpu(around)


def a_batch_of_messages_in_any_order() -> None:
    """Passed on one by one, every rank would wait until the next one receives."""
    rank = dist.get_rank()

    def around(device: torch.device) -> list[torch.Tensor]:
        received = torch.zeros(4, device=device)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, values(4).to(device), (rank + 1) % SIZE),
                dist.P2POp(dist.irecv, received, (rank - 1) % SIZE),
            ]
        )
        for work in works:
            work.wait()
        return [received]

    same_as_on_the_cpu(around)


def coalesced_collectives() -> None:
    def together(device: torch.device) -> list[torch.Tensor]:
        tensors = [values(3, seed=n).to(device) for n in range(3)]
        with dist._coalescing_manager():  # type: ignore[attr-defined]
            for tensor in tensors:
                dist.all_reduce(tensor)
        parts = [torch.zeros(3 * SIZE, device=device) for _ in tensors]
        with dist._coalescing_manager(async_ops=True) as manager:  # type: ignore[attr-defined]
            for part, tensor in zip(parts, tensors, strict=True):
                dist.all_gather_into_tensor(part, tensor)
        manager.wait()
        shares = [torch.zeros(3, device=device) for _ in tensors]
        with dist._coalescing_manager():  # type: ignore[attr-defined]
            for share, part in zip(shares, parts, strict=True):
                dist.reduce_scatter_tensor(share, part)
        return [*tensors, *parts, *shares]

    same_as_on_the_cpu(together)


# Streams.


def nothing_waits_on_the_host() -> None:
    control = sim_device.load()
    tensor = values(50).to(own_device())
    torch.accelerator.synchronize(own_device())
    before = control.counters()
    tensor.mul_(2)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    tensor.add_(1)
    after = control.counters()
    assert after["host_waits"] == before["host_waits"]
    assert after["stream_waits"] == before["stream_waits"] + 2  # The library's stream for ours, and ours for it.
    wanted = values(50) * 2
    dist.all_reduce(wanted)
    assert torch.equal(tensor.cpu(), wanted + 1)


def a_staged_exchange_waits_on_the_host_only_when_it_is_called() -> None:
    control = sim_device.load()
    tensor = values(50).to(own_device())
    before = control.counters()["host_waits"]
    work = dist.all_reduce(tensor, async_op=True)
    assert control.counters()["host_waits"] == before + 1
    work.wait()
    tensor.add_(1)
    assert control.counters()["host_waits"] == before + 1
    wanted = values(50)
    dist.all_reduce(wanted)
    assert torch.equal(tensor.cpu(), wanted + 1)
    assert "allreduce" not in control.stand_in_calls()


def two_streams_wait_for_one_work() -> None:
    tensor, side = values(40).to(own_device()), torch.Stream(own_device())
    work = dist.all_reduce(tensor, async_op=True)
    with side:
        work.wait()
    work.wait()
    on_main = tensor * 2
    with side:
        on_side = tensor * 3
    wanted = values(40)
    dist.all_reduce(wanted)
    assert torch.equal(on_main.cpu(), wanted * 2)
    side.synchronize()
    assert torch.equal(on_side.cpu(), wanted * 3)


def results_that_another_stream_waits_for_do_not_reach_freed_memory() -> None:
    device = own_device()
    tensor, side = values(40).to(device), torch.Stream(device)
    work = dist.all_reduce(tensor, async_op=True)
    with side:
        work.wait()
    del tensor, work
    torch.accelerator.current_stream(device).synchronize()
    with torch.get_device_module(sim_device.NAME).device(device):
        others = [torch.full((40,), 5.0, device=device) for _ in range(3)]
        torch.accelerator.current_stream(device).synchronize()
    side.synchronize()
    assert all(other.cpu().tolist() == [5.0] * 40 for other in others)


def tensors_may_be_freed_after_an_async_call() -> None:
    device = own_device()
    results = []
    for step in range(10):
        gathered = torch.zeros(SIZE * 64, device=device)
        work = dist.all_gather_into_tensor(gathered, values(64, seed=step).to(device) + step, async_op=True)
        torch.full((64,), -1.0, device=device)  # Might get the memory of what was just freed.
        work.wait()
        results.append(gathered)
    for step, result in enumerate(results):
        wanted = torch.zeros(SIZE * 64)
        dist.all_gather_into_tensor(wanted, values(64, seed=step) + step)
        assert torch.equal(result.cpu(), wanted)


def the_users_own_streams() -> None:
    device = own_device()
    stream = torch.Stream(device)
    with stream:
        tensor = values(30).to(device) * 3
        dist.all_reduce(tensor)
        tensor = tensor + 1
    wanted = values(30) * 3
    dist.all_reduce(wanted)
    stream.synchronize()
    assert torch.equal(tensor.cpu(), wanted + 1)


def a_future_of_a_work_knows_its_stream() -> None:
    side = torch.Stream(own_device())
    with side:  # Not the stream of the thread that resolves it.
        tensor = values(30).to(own_device())
        dist.all_reduce(tensor, async_op=True).get_future().wait()
        waited = tensor * 2
        then = dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: future.value()[0] * 2).wait()
    side.synchronize()
    wanted = values(30)
    dist.all_reduce(wanted)
    assert torch.equal(waited.cpu(), wanted * 2)
    dist.all_reduce(wanted)
    assert torch.equal(then.cpu(), wanted * 2)


# Groups.


def a_first_message_needs_two_ranks_alone() -> None:
    """Of a group that has exchanged nothing yet; the other ranks are elsewhere, and do not call."""
    group = dist.new_group(range(SIZE))
    tensor = torch.zeros(5, device=own_device())
    if dist.get_rank() == 1:
        dist.send(values(5).to(own_device()), 3, group=group)
    elif dist.get_rank() == 3:
        dist.recv(tensor, 1, group=group)
        assert torch.equal(tensor.cpu(), torch.randint(1, 5, (5,), generator=torch.Generator().manual_seed(1)).float())


def parts_of_the_world() -> None:
    rank = dist.get_rank()
    halves = [dist.new_group([0, 2]), dist.new_group([3, 1])]
    half = halves[rank % 2]

    def summed(device: torch.device) -> list[torch.Tensor]:
        tensor = values(6).to(device)
        dist.all_reduce(tensor, group=half)
        return [tensor]

    same_as_on_the_cpu(summed)
    dist.destroy_process_group(half)


def what_torch_asks_about_the_group() -> None:
    world: Any = dist.group.WORLD
    delegate = world._get_backend(own_device())
    assert delegate.name() == sim_device.LIBRARY
    assert world._get_backend(torch.device("cpu")) is world
    assert set(world._device_types) == {torch.device("cpu"), torch.device(sim_device.NAME)}
    assert dist.get_backend() in ("gyre", sim_device.NAMED_BACKEND)


def barriers_and_objects_stay_on_the_host() -> None:
    control = sim_device.load()
    before = len(control.stand_in_calls())
    dist.barrier()
    shared: list[Any] = [None] * SIZE
    dist.all_gather_object(shared, {"rank": dist.get_rank(), "tensor": values(2).to(own_device())})
    assert [one["rank"] for one in shared] == list(range(SIZE))
    assert shared[1]["tensor"].device == sim_device.device(1)
    assert len(control.stand_in_calls()) == before


def what_the_library_lacks_is_an_error_of_its_own() -> None:
    with pytest.raises(RuntimeError, match="Cannot use ReduceOp of bits"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32, device=own_device()), ReduceOp.BAND)
    with pytest.raises(RuntimeError, match="data type is not supported"):
        dist.all_reduce(torch.ones(2, dtype=torch.int16, device=own_device()))
    with pytest.raises(UnsupportedError, match="device 'meta'"):  # No backend serves it.
        dist.all_reduce(torch.ones(2, device="meta"))


CHECKS: list[Callable[[], None]] = [
    a_first_message_needs_two_ranks_alone,
    every_reduction,
    broadcasts_and_reductions_to_a_root,
    gathers_and_scatters,
    exchanges_of_all_with_all,
    messages_between_two_ranks,
    a_batch_of_messages_in_any_order,
    coalesced_collectives,
    tensors_may_be_freed_after_an_async_call,
    two_streams_wait_for_one_work,
    results_that_another_stream_waits_for_do_not_reach_freed_memory,
    the_users_own_streams,
    a_future_of_a_work_knows_its_stream,
    parts_of_the_world,
    *sim_device.simulated_only([barriers_and_objects_stay_on_the_host]),
]


DELEGATED = sim_device.simulated_only(
    [nothing_waits_on_the_host, what_torch_asks_about_the_group, what_the_library_lacks_is_an_error_of_its_own]
)


def what_a_library_lacks_is_staged() -> None:
    def bits(device: torch.device) -> list[torch.Tensor]:
        tensors = [values(6, dtype=torch.int16).to(device), values(6, dtype=torch.int32).to(device)]
        dist.all_reduce(tensors[0])
        dist.all_reduce(tensors[1], ReduceOp.BAND)
        return tensors

    same_as_on_the_cpu(bits)


def a_staged_call_with_tensors_of_two_devices_is_one_sentence() -> None:
    world: Any = dist.group.WORLD
    outputs = [torch.zeros(2, device=own_device()) for _ in range(SIZE)]
    with pytest.raises(ValueError, match=r"tensors of two devices in one call, \w+:\d and cpu"):
        world.allgather([outputs], [torch.ones(2)])
    assert world._get_backend(own_device()) is world
    assert set(world._device_types) == {torch.device("cpu"), torch.device(sim_device.NAME)}


def a_staged_call_that_one_rank_refuses_is_an_error_on_the_others() -> None:
    """And numbers do not drift apart: the calls after it meet each other."""
    own = own_device()
    outputs = [torch.zeros(2, device=own) for _ in range(SIZE)]
    if dist.get_rank() == 1:
        with pytest.raises(ValueError, match="tensors of two devices in one call"):
            dist.group.WORLD.allgather([outputs], [torch.ones(2)])  # type: ignore[union-attr]
    else:
        with pytest.raises(dist.DistBackendError, match="rank 1"):
            dist.all_gather(outputs, torch.ones(2, device=own))
    tensor = torch.full((2,), float(dist.get_rank()), device=own)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [sum(range(SIZE))] * 2


STAGED = [
    a_staged_call_that_one_rank_refuses_is_an_error_on_the_others,
    *sim_device.simulated_only([a_staged_exchange_waits_on_the_host_only_when_it_is_called]),
    what_a_library_lacks_is_staged,
    a_staged_call_with_tensors_of_two_devices_is_one_sentence,
]


def body() -> None:
    sim_device.join_group(SIZE)
    run_each([*CHECKS, *DELEGATED, *STAGED])
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", ["gyre", sim_device.NAMED_BACKEND])
@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
@each([*CHECKS, *DELEGATED])
def test_a_devices_tensors_go_to_its_backend(
    run_checks: RunChecks, schedule: str, backend: str, check: Callable[[], None]
) -> None:
    run_checks(SIZE, body, check, environment={"SCHEDULE": schedule, "BACKEND": backend})


@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
@each([*CHECKS, *STAGED])
def test_a_devices_tensors_go_through_host_memory(
    run_checks: RunChecks, schedule: str, check: Callable[[], None]
) -> None:
    run_checks(SIZE, body, check, environment={"SCHEDULE": schedule, "BACKEND": f"{sim_device.NAME}:gyre"})
