"""Keras models on a device, with the torch back end, must train as on the CPU: Keras puts all its variables on the GPU
of a host that has one. On the simulated device, through host memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import sim_device
import torch
from checks import RunChecks, each, run_each

SIZE = 2
BATCH = 8


def trained(device: str, make: Callable[[Any], Any], **options: Any) -> list[Any]:
    import gyre.keras as hvd  # noqa: PLC0415  Keras reads the device when it is imported.
    import keras  # noqa: PLC0415
    from keras_models import network, samples, share  # noqa: PLC0415

    with keras.device(device):
        model = network(seed=3)
        optimizer = hvd.DistributedOptimizer(make(keras.optimizers), **options)
        inputs, targets = (torch.from_numpy(share(array, BATCH, hvd.rank(), SIZE)) for array in samples(4 * BATCH))
        for step in range(8):
            rows = slice(4 * (step % 4), 4 * (step % 4) + 4)
            model.zero_grad()
            (model(inputs[rows].to(device)) - targets[rows].to(device)).square().mean().backward()
            gradients = [variable.value.grad for variable in model.trainable_weights]
            with torch.no_grad():
                optimizer.apply(gradients, model.trainable_weights)
        assert {variable.value.device for variable in model.trainable_weights} == {torch.device(device)}
        return [variable.value.detach().cpu().numpy() for variable in model.trainable_weights]


def check_same(make: Callable[[Any], Any], **options: Any) -> None:
    import gyre.keras as hvd  # noqa: PLC0415  As above.

    for ours, wanted in zip(
        trained(f"sim:{hvd.rank()}", make, **options), trained("cpu", make, **options), strict=True
    ):
        numpy.testing.assert_array_equal(ours, wanted)


def training_has_the_cpus_bits() -> None:
    check_same(lambda optimizers: optimizers.SGD(0.1, momentum=0.9))
    check_same(lambda optimizers: optimizers.Adam(0.01))


def options_work_as_on_the_cpu() -> None:
    check_same(lambda optimizers: optimizers.SGD(0.1), backward_passes_per_step=2)
    check_same(lambda optimizers: optimizers.SGD(0.1, clipnorm=0.1))


def values_and_moments_go_through_host_memory() -> None:
    import gyre.keras as hvd  # noqa: PLC0415  As above.
    import keras  # noqa: PLC0415

    device = f"sim:{hvd.rank()}"
    tensor = torch.arange(3.0).to(device) + hvd.rank()
    numpy.testing.assert_array_equal(hvd.allreduce(tensor, op=hvd.Sum), [1, 3, 5])
    rows = numpy.random.default_rng(hvd.rank()).standard_normal((4, 3)).astype("float32")
    results = []
    for place in (device, "cpu"):
        with keras.device(place):
            layer = hvd.SyncBatchNormalization()
            values = torch.tensor(rows).to(place).requires_grad_()
            (layer(values, training=True) ** 3).sum().backward()
            assert values.grad is not None
            results.append([values.grad.cpu().numpy(), *(one.numpy() for one in layer.non_trainable_variables)])
    for ours, wanted in zip(*results, strict=True):
        numpy.testing.assert_allclose(ours, wanted, rtol=1e-6, atol=1e-6)


CHECKS: list[Callable[[], None]] = [
    training_has_the_cpus_bits,
    options_work_as_on_the_cpu,
    values_and_moments_go_through_host_memory,
]


def body() -> None:
    sim_device.follow(os.environ["SCHEDULE"])
    torch.set_num_threads(1)
    import keras_on_torch  # noqa: F401, I001, PLC0415  Before Keras.
    import gyre.keras as hvd  # noqa: PLC0415

    hvd.init()
    run_each(CHECKS)
    hvd.shutdown()


@pytest.mark.parametrize("schedule", list(sim_device.SCHEDULES))
@each(CHECKS)
def test_keras_on_a_device(run_checks: RunChecks, schedule: str, check: Callable[[], None]) -> None:
    run_checks(SIZE, body, check, environment={"SCHEDULE": schedule, "KERAS_TORCH_DEVICE": "cpu"})
