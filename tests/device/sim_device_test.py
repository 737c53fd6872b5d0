"""The test device must show each forgotten wait and every wrong device, and compute what the CPU does: else the suites
that run on it prove nothing."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sim_device
import torch
from checks import RunChecks, each, run_each
from torch import nn

SIM = "sim:0"
ELEMENTS = 1000


def numbers(seed: int = 0) -> torch.Tensor:
    return torch.rand(ELEMENTS, generator=torch.Generator().manual_seed(seed))


def pinned(values: torch.Tensor) -> torch.Tensor:
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values)


def torch_sees_two_devices() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("sim")
    assert torch.accelerator.device_count() == 2
    assert torch.ones(2, device="sim").device == torch.device(SIM)
    with torch.sim.device(1):  # type: ignore[attr-defined]
        assert torch.ones(2, device="sim").device == torch.device("sim:1")
    with pytest.raises(RuntimeError, match="invalid device ordinal 2"):
        torch.accelerator.set_device_index(2)


def results_are_the_cpus() -> None:
    on_cpu = numbers().view(10, 100)
    on_device = on_cpu.to(SIM)
    for function in (
        lambda x: x @ x.t(),
        lambda x: torch.softmax(x, 1).sum(0),
        lambda x: x[1:5, ::3].contiguous() * 2,
        lambda x: x.topk(3).indices,
        lambda x: x[x > 0.5],  # Its shape depends on values.
        lambda x: torch.cat([x, x.double()]).cumsum(0),
        lambda x: x.unfold(1, 4, 2).amax(2),
        lambda x: x.clone().mul_(3).add_(torch.tensor(2.0)),
    ):
        result = function(on_device)
        assert result.device == torch.device(SIM)
        assert torch.equal(result.cpu(), function(on_cpu))


def tensors_of_two_devices_do_not_mix() -> None:
    one, other = torch.ones(2, device=SIM), torch.ones(2, device="sim:1")
    for mixed in (lambda: one + other, lambda: one + torch.ones(2), lambda: torch.mul(one, one, out=torch.ones(2))):
        with pytest.raises(RuntimeError, match=r"same device|device type"):
            mixed()
    assert (one + other.to(SIM)).tolist() == [2, 2]


def a_network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 7 * 7, 10)
    )


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "adamw": functools.partial(torch.optim.AdamW, lr=0.01),
}


def trained(device: str, optimizer: str) -> list[torch.Tensor]:
    network = a_network().to(device)
    steps = OPTIMIZERS[optimizer](network.parameters())
    for step in range(3):
        inputs = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(step)).to(device)
        loss = nn.functional.cross_entropy(network(inputs), torch.arange(4, device=device))
        steps.zero_grad()
        loss.backward()
        steps.step()
    return [tensor.detach().cpu() for tensor in network.state_dict().values()]


def a_trained_network_has_the_cpus_bits() -> None:
    for optimizer in OPTIMIZERS:
        for on_device, on_cpu in zip(trained(SIM, optimizer), trained("cpu", optimizer), strict=True):
            assert torch.equal(on_device, on_cpu)


def trained_by_autograds_thread(device: str) -> torch.Tensor:
    weight = numbers().to(device).requires_grad_()
    loss = torch.utils.checkpoint.checkpoint(lambda x: (x * x).sum(), weight, use_reentrant=True)
    loss.backward()
    gradient = weight.grad
    assert gradient is not None
    return gradient.cpu()


def checkpointing_nests_backward_on_the_devices_thread() -> None:
    assert torch.equal(trained_by_autograds_thread(SIM), trained_by_autograds_thread("cpu"))


def counters_tell_waits_of_host_and_stream() -> None:
    control = sim_device.load()
    source, side = torch.zeros(ELEMENTS, device=SIM), torch.Stream(SIM)
    before = control.counters()
    source.add_(1)
    side.wait_stream(torch.accelerator.current_stream())
    after = control.counters()
    assert after["kernels"] == before["kernels"] + 1
    assert (after["host_waits"], after["stream_waits"]) == (before["host_waits"], before["stream_waits"] + 1)
    side.synchronize()
    assert control.counters()["host_waits"] == before["host_waits"] + 1


def an_event_is_reached_after_what_was_queued_before_it() -> None:
    tensor, event = torch.zeros(1, device=SIM), torch.Event(SIM)
    assert event.query()  # Not recorded yet.
    torch.accelerator.synchronize()
    tensor.fill_(3)
    event.record(torch.accelerator.current_stream())
    sim_device.load().set_schedule(*sim_device.SCHEDULES["lazy"])
    tensor.fill_(4)
    event.synchronize()
    assert event.query()
    assert tensor.item() == 4


def a_copy_between_devices_waits_for_both() -> None:
    for step in range(20):
        source, target = torch.zeros(ELEMENTS, device=SIM), torch.zeros(ELEMENTS, device="sim:1")
        values = numbers(step)
        target.fill_(7)
        source.copy_(values)
        target.copy_(source, non_blocking=True)
        assert torch.equal(target.cpu(), values)


CHECKS: list[Callable[[], None]] = [
    torch_sees_two_devices,
    results_are_the_cpus,
    tensors_of_two_devices_do_not_mix,
    a_trained_network_has_the_cpus_bits,
    checkpointing_nests_backward_on_the_devices_thread,
    counters_tell_waits_of_host_and_stream,
    an_event_is_reached_after_what_was_queued_before_it,
    a_copy_between_devices_waits_for_both,
]


def under_the_lazy_schedule() -> None:
    sim_device.follow("lazy")
    run_each(CHECKS)


def under_the_random_schedule() -> None:
    sim_device.follow("random")
    run_each(CHECKS)


@each(CHECKS)
def test_the_lazy_device(run_checks: RunChecks, check: Callable[[], None]) -> None:
    run_checks(1, under_the_lazy_schedule, check)


@each(CHECKS)
def test_the_random_device(run_checks: RunChecks, check: Callable[[], None]) -> None:
    run_checks(1, under_the_random_schedule, check)


# Of a staged exchange.
WAITS = ["compute to copy", "copy to host", "back to compute", "record_stream", "reuse of the arena"]


class Staged:
    """Tensors go to host memory one by one, double there, and come back, on two streams; without one of WAITS."""

    def __init__(self, left_out: str) -> None:
        self._left_out = left_out
        self._out, self._back = torch.Stream(SIM), torch.Stream(SIM)
        self._arena = torch.empty(ELEMENTS, pin_memory=True)

    def _waits(self, wait: str) -> bool:
        return wait != self._left_out

    def begin(self, source: torch.Tensor) -> None:
        if self._waits("reuse of the arena"):
            self._back.synchronize()
        if self._waits("compute to copy"):
            self._out.wait_stream(torch.accelerator.current_stream())
        with self._out:
            self._arena.copy_(source, non_blocking=True)
        if self._waits("record_stream"):
            source.record_stream(self._out)

    def finish(self) -> torch.Tensor:
        if self._waits("copy to host"):
            self._out.synchronize()
        self._arena.mul_(2)
        with self._back:
            result = torch.empty(ELEMENTS, device=SIM)
            result.copy_(self._arena, non_blocking=True)
        if self._waits("record_stream"):
            result.record_stream(torch.accelerator.current_stream())
        return result

    def join(self) -> None:
        if self._waits("back to compute"):
            torch.accelerator.current_stream().wait_stream(self._back)


def wrong_steps(left_out: str, steps: int = 20) -> int:
    exchange, results = Staged(left_out), []
    for step in range(steps):
        first, second = numbers(step).to(SIM).mul_(0.5), numbers(step + steps).to(SIM).mul_(0.5)
        exchange.begin(first)
        if step % 2:  # The program goes on: it frees the tensor, uses new memory, and looks at a number.
            del first
            assert torch.zeros(ELEMENTS, device=SIM).sum().item() == 0
        doubled = [exchange.finish()]
        exchange.begin(second)
        doubled.append(exchange.finish())
        exchange.join()
        results.append([result + 1 for result in doubled])
    wanted = ([numbers(step) + 1, numbers(step + steps) + 1] for step in range(steps))
    return sum(
        not all(torch.equal(a.cpu(), b) for a, b in zip(pair, right, strict=True))
        for pair, right in zip(results, wanted, strict=True)
    )


def forgotten_waits_are_wrong_numbers() -> None:
    sim_device.follow("lazy")
    lazy = {wait: wrong_steps(wait) for wait in ["none", *WAITS]}
    sim_device.follow("random")
    at_random = {wait: wrong_steps(wait) for wait in ["none", *WAITS]}
    print("of 20 steps are wrong: lazy", lazy, "random", at_random)
    assert lazy["none"] == at_random["none"] == 0
    assert all(lazy[wait] > 0 for wait in WAITS), lazy


def test_each_wait_of_a_staged_exchange_that_is_left_out_gives_wrong_numbers(run_ranks: Callable[..., object]) -> None:
    run_ranks(1, forgotten_waits_are_wrong_numbers)


def test_the_host_dies_when_it_touches_device_memory() -> None:
    """A forgotten copy would otherwise go unseen."""
    program = (
        "import ctypes, sim_device, torch; sim_device.load(); "
        "ctypes.string_at(torch.ones(2, device='sim').data_ptr(), 8)"
    )
    support = Path(sim_device.__file__).parent
    ended = subprocess.run([sys.executable, "-c", program], cwd=support, capture_output=True, text=True, check=False)
    assert ended.returncode < 0, ended
