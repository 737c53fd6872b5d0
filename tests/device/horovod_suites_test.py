"""What the tests of gyre.torch, and those of its table of behaviour, say of CPU tensors must hold for tensors of a
device: their checks run again with a device as torch's default one."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import gyre.torch as hvd
import pytest
import sim_device
import torch
from checks import RunChecks, run_each
from horovod_on_device import leave
from torch import nn

SIZE = 2
FOLDER = Path(__file__).resolve().parents[1] / "python"
SUITES = {
    "operations_test": "EVERYTHING",
    "horovod_checklist_test": "CHECKS",
    "optimizer_test": "EVERYTHING",
    "end_of_backward_test": "EVERYTHING",
}
# Checks that need the CPU's memory, or what the simulated device lacks.
LEFT_OUT = {
    "alltoall_with_and_without_splits": "the received splits are in host memory",
    "tensors_that_cannot_be_exchanged": "sparse tensors",
    "splits_of_an_alltoall": "NumPy",
    "a_model_on_two_devices": "names the CPU",
    "lazily_negated_gradients": "gives a gradient of the CPU",
}
# Checks of what is only so where Gyre exchanges each gradient itself, and not the buckets of a library's devices.
LEFT_OUT_DELEGATED = {
    "timelines_of_training": "has a row for each gradient, not for each bucket on a device",
    "gradients_live_in_the_arena": "a bucket on a device is new memory in each step",
}


@functools.cache
def suite(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checks_of(name: str, carrier: str) -> list[Callable[[], None]]:
    every: list[Callable[[], None]] = getattr(suite(name), SUITES[name])
    # Of hardware that ranks share, what is staged are the buckets.
    left_out = LEFT_OUT if carrier == "staged" and sim_device.SIMULATED else LEFT_OUT | LEFT_OUT_DELEGATED
    return [check for check in every if check.__name__ not in left_out]


def made_on_the_cpu(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Where a kernel draws random numbers when it runs, seeds do not reach it."""

    def on_the_cpu(*arguments: object) -> nn.Module:
        with torch.device("cpu"):
            made = make(*arguments)
        return made.to(torch.get_default_device())

    return on_the_cpu


def settled(check: Callable[[], None]) -> Callable[[], None]:
    """The next one may shut the job down on rank 0, which keeps the store through which the stand-in communicates."""

    @functools.wraps(check)
    def run() -> None:
        check()
        for device in range(torch.accelerator.device_count()):
            torch.accelerator.synchronize(device)
        hvd.barrier(name=f"after {check.__name__}")

    return run


def body() -> None:
    sim_device.begin()
    torch.set_num_threads(1)
    name = os.environ["SUITE"]
    if hasattr(suite(name), "model"):
        setattr(suite(name), "model", made_on_the_cpu(suite(name).model))  # noqa: B010  It is a module's.
    hvd.init()
    torch.set_default_device(sim_device.device(hvd.rank()))
    with sim_device.DrawnOnTheCpu():
        run_each([settled(check) for check in checks_of(name, os.environ["CARRIER"])])
    leave()


@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
@pytest.mark.parametrize(
    ("carrier", "name", "check"),
    [
        (carrier, name, check)
        for carrier in sim_device.CARRIERS
        for name in SUITES
        for check in checks_of(name, carrier)
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_check_of_the_cpu_holds_on_a_device(
    run_checks: RunChecks, schedule: str, carrier: str, name: str, check: Callable[[], None]
) -> None:
    run_checks(SIZE, body, check, environment={"SCHEDULE": schedule, "CARRIER": carrier, "SUITE": name})
