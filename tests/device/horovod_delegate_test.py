"""What a device's own library needs of gyre.torch: one order of its calls on all ranks, whatever the order of the
program's; no call that the ranks disagree about; a way through host memory where it cannot be used; and waits of
streams only. On the simulated device, with a stand-in for NCCL."""

from __future__ import annotations

import logging
import types
import unittest.mock
from collections.abc import Callable

import gyre.torch as hvd
import pytest
import sim_device
import torch
from checks import RunChecks, each, run_each
from gyre.errors import CallOrderError, MismatchError
from gyre.torch import _device_buckets
from horovod_on_device import leave, own_device, values
from ranks_fixture import RunRanks
from sim_device import equal
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

SIZE = 3


def calls_of_the_library() -> list[str]:
    names: list[str] = sim_device.load().stand_in_calls()
    return names


def the_library_does_what_it_can() -> None:
    device = own_device()
    before = len(calls_of_the_library())
    hvd.allreduce(values(5).to(device))
    hvd.broadcast(values(5).to(device), 1)
    hvd.allgather(values(hvd.rank() + 1, 2).to(device))
    hvd.reducescatter(values(7).to(device))
    hvd.alltoall(values(SIZE).to(device))
    assert calls_of_the_library()[before:] == ["allreduce", "broadcast", "allgather", "reduce_scatter", "alltoall"]


def what_it_lacks_goes_through_host_memory() -> None:
    device = own_device()
    before = calls_of_the_library()
    for tensor in (values(5).to(torch.int16), values(5) > 0.5):
        assert equal(hvd.allreduce(tensor.to(device), op=hvd.Max), hvd.allreduce(tensor, op=hvd.Max))
    whole = (values(5) * 9).to(torch.int32)
    assert equal(hvd.allreduce(whole.to(device)), hvd.allreduce(whole))
    assert equal(hvd.allreduce(values(5).to(device), op=hvd.Adasum), hvd.allreduce(values(5), op=hvd.Adasum))
    assert calls_of_the_library() == before


def operations_in_another_order_on_each_rank() -> None:
    device, names = own_device(), [f"operation {number}" for number in range(12)]
    own = names[4 * hvd.rank() :] + names[: 4 * hvd.rank()]
    wanted = {name: hvd.allreduce(values(8, seed=seed)) for seed, name in enumerate(names)}
    handles = {name: hvd.allreduce_async(values(8, seed=names.index(name)).to(device), name=name) for name in own}
    for name in reversed(own):
        assert equal(handles[name].wait(), wanted[name])


def a_call_is_passed_on_while_the_program_waits_for_something_else() -> None:
    """Rank 0 needs the result before it makes a call for which the other ranks wait."""
    device = own_device()
    first = hvd.allreduce_async(values(4).to(device), name="needed")
    if hvd.rank() == 0:
        first.wait().cpu()
    hvd.barrier(name="after it")
    assert equal(first.wait(), hvd.allreduce(values(4), name="needed, on the CPU"))


def a_tensor_on_another_device_of_one_rank_meets_the_others() -> None:
    """The library has one device of each rank, and with two at once its order is lost."""
    own = own_device()
    hvd.allreduce(values(3).to(own))
    other = sim_device.device(1 - own.index) if hvd.rank() == 1 else own
    for step in range(5):
        places = own, other, own
        tensors = [(values(50, seed=seed + step) * 2).to(place) * 3 for seed, place in enumerate(places)]
        written = values(50, seed=9).to(other)
        handles = [hvd.allreduce_async(tensor) for tensor in tensors]
        handles += [hvd.broadcast_async_(written, 1), hvd.allgather_async(tensors[1])]
        del tensors
        overwrite_freed_memory(other)
        results = [handle.wait() for handle in handles]
        assert [result.device for result in results] == [*places, other, other]
        assert results[3] is written
        for seed, result in enumerate(results[:3]):
            assert equal(result, hvd.allreduce(values(50, seed=seed + step) * 2 * 3))
        assert equal(written, hvd.broadcast(values(50, seed=9), 1))
        assert equal(results[4], hvd.allgather(values(50, seed=1 + step) * 2 * 3))


def nothing_waits_on_the_host() -> None:
    control, device = sim_device.load(), own_device()
    hvd.allreduce(values(2).to(device))  # The first one makes the library's communicator.
    tensors = [values(50, seed=seed).to(device) for seed in range(4)]
    torch.accelerator.synchronize(device)
    before = control.counters()["host_waits"]
    handles = [hvd.allreduce_async(tensor * 2) for tensor in tensors]
    several = hvd.grouped_allreduce([tensor + 1 for tensor in tensors])
    rows = hvd.allgather(tensors[0] * 3)
    results = [handle.wait() + 1 for handle in handles]
    assert control.counters()["host_waits"] == before
    for seed, (result, other) in enumerate(zip(results, several, strict=True)):
        assert equal(result, hvd.allreduce(values(50, seed=seed) * 2) + 1)
        assert equal(other, hvd.allreduce(values(50, seed=seed) + 1))
    assert equal(rows, hvd.allgather(values(50) * 3))


def a_disagreement_is_one_error_on_all_ranks() -> None:
    with pytest.raises(MismatchError, match=r"'allreduce.x': the shape differs: .*float32 \[3\].*float32 \[4\]"):
        hvd.allreduce(values(4 if hvd.rank() == 1 else 3).to(own_device()), name="x")
    hvd.allreduce(values(3).to(own_device()), name="x")


def a_tensor_on_the_cpu_does_not_meet_tensors_of_devices() -> None:
    tensor = values(3) if hvd.rank() == 1 else values(3).to(own_device())
    differs = (
        r"what exchanges the tensor differs: .* on a device, by the device's own.* on ranks 0, 2; .* in host memory"
    )
    with pytest.raises(MismatchError, match=rf"{differs}.* \(of a tensor on the CPU, .*\) on rank 1;"):
        hvd.allreduce(tensor, name="x")


def a_parameter_that_moves_is_named() -> None:
    layer = nn.Linear(2, 1, bias=False).to(own_device())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.5), layer.named_parameters())

    def step() -> None:
        optimizer.zero_grad()
        layer(torch.ones(1, 2).to(layer.weight.device)).sum().backward()
        optimizer.step()

    step()
    torch.utils.swap_tensors(layer.weight, nn.Parameter(layer.weight.detach().cpu()))
    with pytest.raises(CallOrderError, match=rf"parameter 'weight' is on cpu now; .* on {own_device()}, where it was"):
        step()
    hvd.barrier()


def ranks_that_have_joined_take_no_part() -> None:
    device = own_device()
    for step in range(2 + hvd.rank()):
        tensor = values(4, seed=step).to(device)
        ours = hvd.allreduce(tensor, op=hvd.Sum, name=f"device {step}")
        assert equal(ours, hvd.allreduce(values(4, seed=step), op=hvd.Sum, name=f"CPU {step}"))
    hvd.join()
    before = len(calls_of_the_library())
    hvd.allreduce(values(4).to(device))
    assert calls_of_the_library()[before:] == ["allreduce"]


# Each wait.


def overwrite_freed_memory(device: torch.device) -> None:
    """What was allocated on the current stream, and has been freed."""
    kept = [torch.full((40,), -1.0, device=device) for _ in range(6)]
    torch.accelerator.current_stream(device).synchronize()
    del kept


def results_wait_for_the_tensors_and_for_the_library() -> None:
    device, other = own_device(), torch.Stream(own_device())
    for step in range(5):
        tensor = values(64, seed=step).to(device) * 2
        handle = hvd.allreduce_async(tensor)
        with other:  # It waits for nothing else.
            result = handle.wait() + 1
        other.synchronize()
        assert equal(result, hvd.allreduce(values(64, seed=step) * 2) + 1)


def a_tensor_freed_after_its_call_is_not_given_to_others() -> None:
    device, other = own_device(), torch.Stream(own_device())
    hvd.allreduce(values(2).to(device))
    for step in range(10):
        tensor = values(40, seed=step).to(device) * 2
        handle = hvd.allreduce_async(tensor)
        with other:
            result = handle.wait() + 1  # It has been passed on.
        del tensor, handle
        overwrite_freed_memory(device)
        other.synchronize()
        assert equal(result, hvd.allreduce(values(40, seed=step) * 2) + 1)


def a_freed_result_is_not_given_to_others_before_it_was_read() -> None:
    device, other = own_device(), torch.Stream(own_device())
    for step in range(5):
        result = hvd.allreduce(values(40, seed=step).to(device))
        torch.accelerator.current_stream(device).synchronize()
        doubled = result * 2
        del result
        with other:
            hvd.allreduce(torch.ones(40).to(device)).cpu()
        assert equal(doubled, hvd.allreduce(values(40, seed=step)) * 2)


def gradients_of_two_streams_are_packed_together() -> None:
    device = own_device()
    main, other, third = torch.accelerator.current_stream(device), torch.Stream(device), torch.Stream(device)
    weights = [nn.Parameter(torch.ones(40).to(device)) for _ in range(2)]
    torch.accelerator.synchronize(device)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), end_in_backward=False)
    for step in range(8):
        optimizer.zero_grad()
        first = (weights[0] * (hvd.rank() + step)).sum()
        with other:
            second = (weights[1] * (hvd.rank() + 2 * step)).sum()
        main.wait_event(other.record_event())
        (first + second).backward()
        if step == 0:
            third.wait_event(main.record_event())  # Buckets are made when the first step ends.
        with third:  # Later it waits for nothing else.
            optimizer.step()
        for stream in (main, other) if step % 2 else (other, main):
            with stream:
                overwrite_freed_memory(device)
        third.synchronize()
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        wanted = [torch.full((40,), 1.0 + step), torch.full((40,), 1.0 + 2 * step)]
        assert all(map(equal, gradients, wanted)), gradients


# The optimizer.


def the_library_exchanges_an_optimizers_buckets() -> None:
    device = own_device()
    weights = [nn.Parameter(torch.ones(30).to(device)) for _ in range(5)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.1))
    for step in range(3):
        optimizer.zero_grad()
        before = len(calls_of_the_library())
        sum((weight * (hvd.rank() + number)).sum() for number, weight in enumerate(weights)).backward()  # type: ignore[union-attr]
        optimizer.step()
        assert calls_of_the_library()[before:] == ["allreduce"], step
        assert [weight.grad[0].item() for weight in weights if weight.grad is not None] == [1.0, 2.0, 3.0, 4.0, 5.0]


def groups_and_large_gradients_have_buckets_of_their_own() -> None:
    device = own_device()
    weights = [nn.Parameter(torch.ones(size).to(device)) for size in (10, 1000, 20, 30)]
    with unittest.mock.patch.object(_device_buckets, "_BUCKET_BYTES", 4000):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.1), groups=[[weights[0], weights[3]]])
        for _ in range(2):
            optimizer.zero_grad()
            before = len(calls_of_the_library())
            sum((weight * (hvd.rank() + 1)).sum() for weight in weights).backward()  # type: ignore[union-attr]
            optimizer.step()
            assert calls_of_the_library()[before:] == ["allreduce"] * 3
            assert [weight.grad[-1].item() for weight in weights if weight.grad is not None] == [2.0] * 4


def kept_gradients_keep_their_values() -> None:
    device = own_device()
    weight = nn.Parameter(torch.ones(10).to(device))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.0))
    kept = []
    for step in range(4):
        optimizer.zero_grad()
        (weight * (hvd.rank() + step)).sum().backward()
        optimizer.step()
        kept.append(weight.grad)
    assert all(
        equal(gradient, torch.full((10,), 1.0 + step)) for step, gradient in enumerate(kept) if gradient is not None
    )


def gradients_that_are_not_kept_are_freed() -> None:
    """With zero_grad(), as PyTorch does, and not with the next step."""
    weight = nn.Parameter(torch.ones(10).to(own_device()))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1))
    for _ in range(3):
        weight.sum().backward()
        optimizer.step()
        assert weight.grad is not None
        memory = StorageWeakRef(weight.grad.untyped_storage())
        optimizer.zero_grad()
        torch.accelerator.synchronize(own_device())
        assert memory.expired()


def hooks_wait_for_nothing() -> None:
    """Not even for the other ranks, one of which is late."""
    control, device = sim_device.load(), own_device()
    weights = [nn.Parameter(torch.full((50,), 0.5).to(device)) for _ in range(30)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.1), end_in_backward=False)
    for step in range(3):
        optimizer.zero_grad()
        torch.accelerator.synchronize(device)
        if step and hvd.rank() == 2:
            hvd.barrier(name=f"the others are past backward {step}")
        before = control.counters()["host_waits"]
        sum((weight * (hvd.rank() + 1)).square().sum() for weight in weights).backward()  # type: ignore[union-attr]
        assert control.counters()["host_waits"] == before
        if step and hvd.rank() != 2:
            hvd.barrier(name=f"the others are past backward {step}")
        optimizer.step()
        if step:
            assert control.counters()["host_waits"] == before


CHECKS: list[Callable[[], None]] = [
    *sim_device.simulated_only([the_library_does_what_it_can, what_it_lacks_goes_through_host_memory]),
    operations_in_another_order_on_each_rank,
    a_call_is_passed_on_while_the_program_waits_for_something_else,
    *sim_device.simulated_only([a_tensor_on_another_device_of_one_rank_meets_the_others, nothing_waits_on_the_host]),
    a_disagreement_is_one_error_on_all_ranks,
    a_tensor_on_the_cpu_does_not_meet_tensors_of_devices,
    a_parameter_that_moves_is_named,
    results_wait_for_the_tensors_and_for_the_library,
    a_tensor_freed_after_its_call_is_not_given_to_others,
    a_freed_result_is_not_given_to_others_before_it_was_read,
    gradients_of_two_streams_are_packed_together,
    *sim_device.simulated_only(
        [the_library_exchanges_an_optimizers_buckets, groups_and_large_gradients_have_buckets_of_their_own]
    ),
    kept_gradients_keep_their_values,
    gradients_that_are_not_kept_are_freed,
    *sim_device.simulated_only([hooks_wait_for_nothing, ranks_that_have_joined_take_no_part]),
]


def body_on_one_device() -> None:
    sim_device.begin()
    torch.sim.get_device_properties = lambda device: types.SimpleNamespace(uuid="one for all")  # type: ignore[attr-defined]  # noqa: ARG005
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("gyre").addHandler(handler)
    hvd.init()
    for seed in range(3):
        assert equal(hvd.allreduce(values(5, seed=seed).to("sim:0")), hvd.allreduce(values(5, seed=seed)))
        assert equal(hvd.alltoall(values(SIZE, seed=seed).to("sim:0")), hvd.alltoall(values(SIZE, seed=seed)))
    weight = nn.Parameter(torch.ones(4).to("sim:0"))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    for _ in range(3):
        optimizer.zero_grad()
        (weight * hvd.rank()).sum().backward()
        optimizer.step()
    assert weight.tolist() == [-2.0] * 4
    assert calls_of_the_library() == []
    assert [text for text in said if "use the same device" in text] == [
        "ranks 0 and 1 use the same device, which torch's backend standin refuses: tensors on sim are exchanged "
        "through host memory (docs/guide/gpu.md). With a device for each rank, call "
        "torch.accelerator.set_device_index(local_rank)"
    ] * (hvd.rank() == 0)
    leave()


@sim_device.needs_simulation
def test_ranks_on_one_device_exchange_through_host_memory(run_ranks: RunRanks) -> None:
    run_ranks(SIZE, body_on_one_device, environment={"SCHEDULE": "lazy", "CARRIER": "delegated"})


def body() -> None:
    sim_device.begin()
    hvd.init()
    run_each(CHECKS)
    leave()


@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
@each(CHECKS)
def test_the_library_of_a_device(run_checks: RunChecks, schedule: str, check: Callable[[], None]) -> None:
    run_checks(SIZE, body, check, environment={"SCHEDULE": schedule, "CARRIER": "delegated"})
