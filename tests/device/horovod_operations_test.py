"""The operations of gyre.torch on tensors of a device must have the CPU's results, whatever streams the
program uses, and nothing may be read before it is written: through host memory to the bit, and by the device's own
library. On the simulated device, with a stand-in for NCCL."""

from __future__ import annotations

import unittest.mock
from collections.abc import Callable, Sequence
from typing import Any

import gyre.torch as hvd
import pytest
import sim_device
import torch
from checks import RunChecks, run_each
from gyre.errors import InvalidArgumentError, UnsupportedError
from horovod_on_device import leave, own_device, values
from sim_device import equal

SIZE = 3
TYPES = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
]


def same_as_on_the_cpu(operation: Callable[[torch.device], Sequence[torch.Tensor]]) -> None:
    """`operation` makes tensors on a device, and returns its results."""
    ours, cpus = operation(own_device()), operation(torch.device("cpu"))
    for result, wanted in zip(ours, cpus, strict=True):
        assert result.device == own_device()
        assert equal(result, wanted), (result.cpu(), wanted)


def every_reduction_of_every_type() -> None:
    for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
        for dtype in TYPES:

            def reduced(device: torch.device, op: Any = op, dtype: torch.dtype = dtype) -> list[torch.Tensor]:
                return [hvd.allreduce(values(7, 3, dtype=dtype).to(device), op=op)]

            if not (op == hvd.Average and dtype == torch.bool):
                same_as_on_the_cpu(reduced)


def all_forms_of_allreduce() -> None:
    def forms(device: torch.device) -> list[torch.Tensor]:
        written, later = values(9, seed=1).to(device), values(9, seed=2).to(device)
        several = [values(4, seed=3).to(device), values(2, 2, seed=4).to(device)]
        several_later = [values(4, seed=5).to(device), values(5, seed=6).to(device)]
        assert hvd.allreduce_(written) is written
        assert hvd.synchronize(hvd.allreduce_async_(later, op=hvd.Sum)) is later
        for result, tensor in zip(hvd.grouped_allreduce_(several), several, strict=True):
            assert result is tensor
        hvd.grouped_allreduce_async_(several_later).wait()
        return [
            written,
            later,
            *several,
            *several_later,
            hvd.allreduce(values(9).to(device), op=hvd.Sum, prescale_factor=0.3, postscale_factor=1.7),
            hvd.allreduce(values(9).to(device), compression=hvd.Compression.fp16).half(),
            hvd.allreduce_async(values(9).to(device), name="named").wait(),
            *[
                one.bfloat16()
                for one in hvd.grouped_allreduce(
                    [values(3).to(device), values(4).to(device)], compression=hvd.Compression.bf16
                )
            ],
            *hvd.grouped_allreduce_async([values(3).to(device), values(4).to(device)], name="group").wait(),
        ]

    same_as_on_the_cpu(forms)


def every_shape_and_layout() -> None:
    def laid_out(device: torch.device) -> list[torch.Tensor]:
        whole = values(4, 6, 5).to(device)
        tensors = [
            values().to(device),
            values(0, 3).to(device),
            whole.transpose(0, 2),
            whole[1:3, ::2],
            values(2, 3, 4, 4).to(device).contiguous(memory_format=torch.channels_last),
            whole[0, 0, 0].expand(5),
        ]
        results = [hvd.allreduce(tensor) for tensor in tensors]
        hvd.allreduce_(whole[:, 1])
        hvd.broadcast_(whole.transpose(0, 1)[3], 1)
        results += [hvd.broadcast(tensor, 2) for tensor in tensors]
        results += [hvd.allgather(tensor) for tensor in tensors]
        return [*results, whole]

    same_as_on_the_cpu(laid_out)


def broadcasts() -> None:
    def sent(device: torch.device) -> list[torch.Tensor]:
        results = []
        for root in range(SIZE):
            written, later = values(6, seed=1).to(device), values(6, seed=2).to(device)
            assert hvd.broadcast_(written, root) is written
            assert hvd.broadcast_async_(later, root).wait() is later
            results += [written, later, hvd.broadcast(values(6).to(device), root)]
            results.append(hvd.broadcast_async(values(6, dtype=torch.int8).to(device), root).wait())
        return results

    same_as_on_the_cpu(sent)


def gathers_and_scatters() -> None:
    def moved(device: torch.device) -> list[torch.Tensor]:
        rank, rows = hvd.rank(), values(hvd.rank(), 2).to(device)
        parts = [values(2, 2, seed=1).to(device), values(rank + 1, seed=2).to(device)]
        shares = [values(SIZE * 2, seed=3).to(device), values(SIZE + 1, 2, seed=4).to(device)]
        return [
            hvd.allgather(rows),
            hvd.allgather_async(rows, name="rows").wait(),
            *hvd.grouped_allgather(parts),
            hvd.reducescatter(values(7, 2).to(device), op=hvd.Sum, prescale_factor=0.3),
            hvd.reducescatter(values(7, 2).to(device), compression=hvd.Compression.fp16).half(),
            *hvd.grouped_reducescatter(shares),
        ]

    same_as_on_the_cpu(moved)


def exchanges_of_all_with_all() -> None:
    counts = [(hvd.rank() + other) % 3 for other in range(SIZE)]

    def exchanged(device: torch.device) -> list[torch.Tensor]:
        rows = values(sum(counts), 2).to(device)
        results = [hvd.alltoall(values(SIZE * 2).to(device))]
        wide = torch.tensor(counts)
        for splits in (counts, wide, torch.tensor(counts, dtype=torch.int32).to(device)):
            result, received = hvd.alltoall(rows, splits)
            assert received.tolist() == counts
            assert received.is_cpu
            assert received.dtype == (torch.int64 if splits is wide else torch.int32)
            results.append(result)
        return results

    same_as_on_the_cpu(exchanged)


def adaptive_sums() -> None:
    def adapted(device: torch.device) -> list[torch.Tensor]:
        written = values(5, seed=1).to(device)
        assert hvd.allreduce_(written, op=hvd.Adasum) is written
        several = [values(4, seed=2).to(device), values(2, 2, seed=3).to(device)]
        alone = hvd.allreduce(values(6).to(device), op=hvd.Adasum)
        return [written, alone, *hvd.grouped_allreduce(several, op=hvd.Adasum)]

    same_as_on_the_cpu(adapted)


def gradients_go_back_through_operations() -> None:
    rank = hvd.rank()

    def through(device: torch.device) -> list[torch.Tensor]:
        leaves = [values(SIZE * 2, 2, seed=seed).to(device).requires_grad_() for seed in range(6)]
        results = [
            hvd.allreduce(leaves[0], prescale_factor=0.5),
            hvd.broadcast(leaves[1], 1),
            hvd.allgather(leaves[2][: rank + 1]),
            hvd.reducescatter(leaves[3], op=hvd.Sum),
            hvd.alltoall(leaves[4]),
            *hvd.grouped_allreduce([leaves[5], leaves[0] * 2], op=hvd.Sum),
        ]
        loss = sum((result * values(*result.shape, seed=9).to(device)).sum() for result in results)
        loss.backward()  # type: ignore[union-attr]
        return [result.detach() for result in results] + [leaf.grad for leaf in leaves if leaf.grad is not None]

    same_as_on_the_cpu(through)


def process_sets_of_some_ranks() -> None:
    pair = hvd.add_process_set([0, 2])

    def among_two(device: torch.device) -> list[torch.Tensor]:
        if hvd.rank() == 1:
            return []
        written = values(4, seed=1).to(device)
        hvd.broadcast_(written, 2, process_set=pair)
        return [written, hvd.allreduce(values(4).to(device), process_set=pair)]

    same_as_on_the_cpu(among_two)
    hvd.remove_process_set(pair)


def a_rank_that_has_joined_contributes_zeros() -> None:
    def joined(device: torch.device) -> list[torch.Tensor]:
        results = []
        for step in range(3 if hvd.rank() else 1):
            results.append(hvd.allreduce(values(4, seed=step).to(device), op=hvd.Sum, name=f"step.{step}"))
        hvd.join()
        return results

    same_as_on_the_cpu(joined)


def objects_with_tensors() -> None:
    sent = {"weights": values(3).to(own_device()), "counts": [values(2, dtype=torch.int64)], "type": torch.float16}
    received = hvd.broadcast_object(sent, 1)
    weights = received["weights"]
    assert weights.device.type == sim_device.NAME
    wanted = hvd.broadcast(values(3), 1)
    assert equal(weights, wanted)
    assert received["counts"][0].is_cpu
    for rank, one in enumerate(hvd.allgather_object(values(2).to(own_device()))):
        assert equal(one, hvd.broadcast(values(2), rank))


# Who meets whom.


def a_rank_with_the_tensor_on_the_cpu_meets_the_others() -> None:
    tensor = values(5) if hvd.rank() == 1 else values(5).to(own_device())
    wanted = hvd.allreduce(values(5))
    result = hvd.allreduce(tensor)
    assert result.device == tensor.device
    assert equal(result, wanted)


def one_group_of_several_devices() -> None:
    places = [torch.device("cpu"), sim_device.device(0), sim_device.device(1)]
    tensors = [values(3, seed=seed).to(place) for seed, place in enumerate(places)]
    results, gathered = hvd.grouped_allreduce(tensors), hvd.grouped_allgather(tensors)
    for ours in (results, gathered):
        assert [result.device for result in ours] == places
    kept = [values(3, seed=seed) for seed in range(3)]
    assert all(map(equal, results, hvd.grouped_allreduce(kept)))
    assert all(map(equal, gathered, hvd.grouped_allgather(kept)))
    hvd.grouped_allreduce_(tensors)
    assert all(map(equal, tensors, results_on_the_cpu(results)))


def results_on_the_cpu(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [result.cpu() for result in results]


def what_cannot_be_exchanged_is_one_sentence() -> None:
    complex_numbers = torch.zeros(2, dtype=torch.complex64).to(own_device())
    with pytest.raises(InvalidArgumentError, match=r"complex64 cannot be exchanged; pass torch.view_as_real"):
        hvd.allreduce(complex_numbers)
    with pytest.raises(UnsupportedError, match="device 'meta'"):
        hvd.allreduce(torch.zeros(2, device="meta"))
    computed = values(2).to(own_device()).requires_grad_() * 2
    with pytest.raises(InvalidArgumentError, match="computed with gradients cannot be overwritten"):
        hvd.allreduce_(computed)


def memory_that_cannot_be_pinned_is_slower_and_right() -> None:
    original: Any = torch.empty_like

    def refusing(*arguments: Any, **options: Any) -> Any:
        if options.get("pin_memory"):
            raise RuntimeError("out of locked memory")
        return original(*arguments, **options)

    with unittest.mock.patch.object(torch, "empty_like", refusing):
        same_as_on_the_cpu(lambda device: [hvd.allreduce(values(5).to(device)), hvd.allgather(values(5).to(device))])


def a_graph_that_is_captured_cannot_contain_an_operation() -> None:
    tensor = values(3).to(own_device())
    capturing = unittest.mock.Mock(**{"is_capturing.return_value": True})
    with (
        unittest.mock.patch.object(torch.accelerator, "current_stream", return_value=capturing),
        pytest.raises(UnsupportedError, match=r"allreduce of 'x': a graph that is captured on \w+:\d cannot contain"),
    ):
        hvd.allreduce(tensor, name="x")
    hvd.allreduce(tensor, name="x")


# Streams.


def only_the_call_waits_on_the_host() -> None:
    control, tensor = sim_device.load(), values(50).to(own_device())
    several = [values(50, seed=seed).to(own_device()) for seed in range(1, 6)]
    before = control.counters()["host_waits"]
    handle = hvd.allreduce_async(tensor)
    assert control.counters()["host_waits"] == before + 1
    group = hvd.grouped_allreduce_async(several)
    assert control.counters()["host_waits"] == before + 2
    results = [handle.wait() + 1, *(result + 1 for result in group.wait())]
    assert control.counters()["host_waits"] == before + 2
    wanted = [hvd.allreduce(values(50, seed=seed)) + 1 for seed in range(6)]
    assert all(map(equal, results, wanted))


def two_streams_wait_for_one_handle() -> None:
    tensor, side = values(40).to(own_device()), torch.Stream(own_device())
    handle = hvd.allreduce_async(tensor)
    with side:
        handle.wait()
    on_main = handle.wait() * 2
    with side:
        on_side = handle.wait() * 3
    wanted = hvd.allreduce(values(40))
    assert equal(on_main, wanted * 2)
    side.synchronize()
    assert equal(on_side, wanted * 3)


def results_that_another_stream_waits_for_do_not_reach_freed_memory() -> None:
    device = own_device()
    tensor, side = values(40).to(device), torch.Stream(device)
    handle = hvd.allreduce_async_(tensor)
    with side:
        handle.wait()
    del tensor, handle
    torch.accelerator.current_stream(device).synchronize()
    others = [torch.full((40,), 5.0, device=device) for _ in range(3)]
    torch.accelerator.current_stream(device).synchronize()
    side.synchronize()
    assert all(other.cpu().tolist() == [5.0] * 40 for other in others)


def tensors_may_be_freed_after_an_async_call() -> None:
    device, handles = own_device(), []
    for step in range(10):
        handles.append(hvd.allreduce_async(values(64, seed=step).to(device) + step))
        handles.append(hvd.allgather_async(values(64, seed=step).to(device) * 2))
        torch.full((64,), -1.0, device=device)  # Might get the memory of what was just freed.
    for step in range(10):
        summed, gathered = handles[2 * step].wait(), handles[2 * step + 1].wait()
        assert equal(summed, hvd.allreduce(values(64, seed=step) + step))
        assert equal(gathered, hvd.allgather(values(64, seed=step) * 2))


def the_users_own_streams() -> None:
    device = own_device()
    stream = torch.Stream(device)
    with stream:
        tensor = hvd.allreduce(values(30).to(device) * 3) + 1
        hvd.broadcast_(tensor, 1)
        tensor = tensor * 2
    wanted = (hvd.allreduce(values(30) * 3) + 1) * 2
    stream.synchronize()
    assert equal(tensor, wanted)


# Of both ways.
CHECKS: list[Callable[[], None]] = [
    every_reduction_of_every_type,
    all_forms_of_allreduce,
    every_shape_and_layout,
    broadcasts,
    gathers_and_scatters,
    exchanges_of_all_with_all,
    adaptive_sums,
    gradients_go_back_through_operations,
    process_sets_of_some_ranks,
    a_rank_that_has_joined_contributes_zeros,
    objects_with_tensors,
    one_group_of_several_devices,
    what_cannot_be_exchanged_is_one_sentence,
    a_graph_that_is_captured_cannot_contain_an_operation,
    two_streams_wait_for_one_handle,
    results_that_another_stream_waits_for_do_not_reach_freed_memory,
    tensors_may_be_freed_after_an_async_call,
    the_users_own_streams,
]
STAGED_CHECKS: list[Callable[[], None]] = [
    memory_that_cannot_be_pinned_is_slower_and_right,
    *sim_device.simulated_only([a_rank_with_the_tensor_on_the_cpu_meets_the_others, only_the_call_waits_on_the_host]),
]


def body() -> None:
    sim_device.begin()
    hvd.init()
    run_each([*CHECKS, *STAGED_CHECKS])
    leave()


@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
@pytest.mark.parametrize(
    ("carrier", "check"),
    [(carrier, check) for carrier in sim_device.CARRIERS for check in CHECKS]
    + [("staged", check) for check in STAGED_CHECKS],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_operation_on_a_device(
    run_checks: RunChecks, schedule: str, carrier: str, check: Callable[[], None]
) -> None:
    run_checks(SIZE, body, check, environment={"SCHEDULE": schedule, "CARRIER": carrier})
